"""What can go wrong in the knowledge base. Every message is one line; `hint` says what to do."""

from __future__ import annotations


class KnowledgeBaseError(Exception):
    """Base of everything that `kb` raises on purpose."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SettingsError(KnowledgeBaseError):
    """A setting is unknown, malformed or contradicts another."""


class HomeUnavailable(KnowledgeBaseError):
    """The home folder cannot be created, read or written."""


class StoreLocked(KnowledgeBaseError):
    """Another process holds the store for longer than the configured wait."""


class StoreDamaged(KnowledgeBaseError):
    """The database is not a readable SQLite file. It is left exactly as it was found."""


class StoreFull(KnowledgeBaseError):
    """There is no space left for the write; what was stored before is intact."""


class StoreTooNew(KnowledgeBaseError):
    """The database was written by a later version of the project."""


class BlobMissing(KnowledgeBaseError):
    """No blob has this digest, or its content no longer matches it."""


class EmbeddingFailed(KnowledgeBaseError):
    """The embedding model cannot be loaded or does not answer."""


class LocalOnly(EmbeddingFailed):
    """Text of a local-only source would have been sent elsewhere; nothing of it was."""


class ModelChanged(EmbeddingFailed):
    """Another embedding model has begun to serve, or is to serve next, while work for one was under way."""


class IndexUnavailable(KnowledgeBaseError):
    """The vector index does not answer. Retrieval stops rather than continuing without it."""


class IndexOutOfStep(IndexUnavailable):
    """The vector index is not what the database says: lost, half written, or another model's."""


class SkillInvalid(KnowledgeBaseError):
    """A skill's folder does not follow the layout."""


class QuotaExceeded(StoreFull):
    """The next write would make the home folder larger than `KERNELEVOLVE_QUOTA` allows."""


class BackupInvalid(KnowledgeBaseError):
    """A file is no backup, or does not hold what its own list of contents says."""


class Refused(KnowledgeBaseError):
    """What was asked for would destroy something; nothing was changed."""


class BenchmarkInvalid(KnowledgeBaseError):
    """A file of benchmark queries cannot be read or holds none."""


class NotFound(KnowledgeBaseError):
    """Nothing is stored under this name."""


class LabelUnknown(KnowledgeBaseError):
    """A target or scope label that no vendor, no stored document and no installed target has."""


class QuestionsInvalid(KnowledgeBaseError):
    """A file of questions for adapting the embedding model cannot be read or is malformed."""


class NothingToLearn(KnowledgeBaseError):
    """The stored documents give too few pairs of question and answer to adapt the embedding model."""


class ModelError(KnowledgeBaseError):
    """A chat model cannot be used: unknown name, missing package, rejected key, not reachable."""


class ModelUnavailable(ModelError):
    """A chat model did not answer for as long as there was patience; later it may."""


class RefinementFailed(KnowledgeBaseError):
    """The chat model or cross-encoder that refines a query does not answer, or not as it was asked to."""
