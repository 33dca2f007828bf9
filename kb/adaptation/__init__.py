"""Fine-tuning the embedding model on what is in the knowledge base, as a small change of its weights."""
