# ruff: noqa: E501 - markup is easier to read unbroken
from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ingest import ingest_paths
from ingest.document import LoadedDocument
from ingest.errors import Unreadable
from ingest.html import tree
from ingest.registry import content_of, loader_for
from kb import KnowledgeBase


def load(html: str | bytes, name: str = "page.html") -> LoadedDocument:
    file = content_of(Path(name), html.encode() if isinstance(html, str) else html)
    return loader_for(file).load(file)


def text(html: str | bytes) -> str:
    loaded = load(html).text
    assert loaded is not None
    return loaded


def headings(html: str) -> list[str]:
    return [s.heading_path for s in load(html).sections]


def section(html: str, ending: str) -> str:
    """The lines of the one section whose heading path ends so."""
    document = load(html)
    assert document.text is not None
    (found,) = [s for s in document.sections if s.heading_path.endswith(ending)]
    return "\n".join(document.text.split("\n")[found.start_line - 1 : found.end_line])


# --- what of a page is content ---

CHROME = """<!doctype html><html><head><title>Tiles — Vendor Docs</title><style>p{color:red}</style>
<script>var words = "in a script";</script></head><body>
<header class="site-header"><a href="/">Vendor</a></header>
<nav><ul><li>Navigation one</li></ul></nav>
<div class="cookie-banner">We use cookies <button>Accept</button></div>
<div class="sphinxsidebar">Sidebar words</div>
%s
<footer>Copyright words</footer></body></html>"""
CONTENT = (
    "<h1>Tiles<a class='headerlink' href='#t'>¶</a></h1><p>Tiles fit the cache &amp; the bank.</p>"
    + "<p>More.</p>" * 20
)


@pytest.mark.parametrize(
    "wrap",
    [
        "<main>%s</main>",
        "<div role='main'>%s</div>",
        "<article>%s</article>",
        "<div class='document'><div class='body'>%s</div></div>",
        "<div id='content'>%s</div>",
        "<div>%s</div>",
        "%s",
    ],
)
def test_only_the_content_is_kept(wrap: str) -> None:
    document = load(CHROME % (wrap % CONTENT))
    assert document.title == "Tiles"
    assert document.text is not None
    assert document.text.startswith("# Tiles\n\nTiles fit the cache & the bank.\n\nMore.")
    for gone in ("script", "Navigation", "cookies", "Accept", "Sidebar", "Copyright", "¶", "color"):
        assert gone not in document.text


def test_a_landmark_with_little_of_the_text_is_not_believed() -> None:
    page = (
        "<main><p>Loading.</p></main><div>" + "<p>The whole of the documentation is here.</p>" * 30 + "</div>"
    )
    assert "documentation" in text(page)


def test_a_class_name_cannot_take_the_page_away() -> None:
    assert "Words" in text(
        "<body class='toc'><div class='sidebar'><h1>Only</h1><p>Words of it.</p></div></body>"
    )


def test_titles_come_from_the_heading_else_from_the_head() -> None:
    assert load("<title>A page | Site</title><p>x</p>").title == "A page"
    assert (
        load("<header><h1>Spec</h1></header><div id=content>" + "<p>words words</p>" * 9 + "</div>").title
        == "Spec"
    )
    assert load("<p>x</p>").title == "page"


# --- blocks ---


def test_headings_lists_and_inline_marks() -> None:
    page = """<h2>One</h2><p>Use <code>a|b</code> and <b>this</b>,<br>see <a href="x">the guide</a>; 10<sup>6</sup>.</p>
    <ul><li>first<ul><li>inner</li></ul></li><li><p>second</p><pre>x = 1\n  y</pre></li></ul>
    <ol start="3"><li>three</li><li>four</li></ol><blockquote><p>said</p></blockquote><h3>Two</h3><p>end</p>"""
    assert text(page) == (
        "## One\n\nUse `a|b` and this,\nsee the guide; 10^6.\n\n- first\n  - inner\n- second\n\n  ```\n  x = 1\n    y\n  ```"
        "\n\n3. three\n4. four\n\n> said\n\n### Two\n\nend"
    )
    assert headings(page) == ["One", "One › Two"]


@pytest.mark.parametrize(
    ("html", "language"),
    [
        (
            '<div class="highlight-python3 notranslate"><div class="highlight"><pre><span></span>%s</pre></div></div>',
            "python",
        ),
        ('<pre><code class="language-cuda">%s</code></pre>', "cuda"),
        ('<pre class="brush: cpp;">%s</pre>', "cpp"),
        ('<div class="sourceCode"><pre class="sourceCode c"><code>%s</code></pre></div>', "c"),
        ("<pre>%s</pre>", ""),
        (
            '<table class="highlighttable"><tr><td class="linenos"><pre>1\n2\n3</pre></td><td><pre>%s</pre></td></tr></table>',
            "",
        ),
        ('<table class="lntable"><tr><td><pre>1\n2\n3\n</pre></td><td><pre>%s</pre></td></tr></table>', ""),
    ],
)
def test_code_keeps_its_lines_whatever_highlights_it(html: str, language: str) -> None:
    code = "for (i = 0; i &lt; n; ++i) {\n\n    <span>x</span>[i] = 1;  \n}"
    expected = f"```{language}\nfor (i = 0; i < n; ++i) {{\n\n    x[i] = 1;\n}}\n```"
    assert text(f"<p>lead</p>{html % code}<p>after</p>") == f"lead\n\n{expected}\n\nafter"


def test_code_with_an_element_per_line() -> None:
    fragment = '<div class="fragment"><div class="line"><span class="lineno">1</span>int x;</div><div class="line">  y();</div></div>'
    assert text(f"<p>a</p>{fragment}").endswith("```\nint x;\n  y();\n```")
    rows = "".join(f'<tr><td class="n" data-n="{i}"></td><td>line{i}</td></tr>' for i in range(3))
    assert text(f'<div class="highlight"><table>{rows}</table></div>') == "```\nline0\nline1\nline2\n```"


def test_code_cannot_close_its_own_fence() -> None:
    assert text("<pre>```\nx\n```</pre>") == "````\n```\nx\n```\n````"


# --- tables ---


def test_spans_are_filled_in() -> None:
    page = """<table><caption>Table 1. Rates</caption><thead>
    <tr><th rowspan=2>Chip</th><th colspan=2>Rate</th></tr><tr><th>FP16</th><th>FP8</th></tr></thead>
    <tbody><tr><td rowspan="2">A</td><td>1</td><td>2</td></tr><tr><td colspan=2>same | both</td></tr>
    <tr><td>B<br>new</td><td><ul><li>x</li><li>y</li></ul></td><td><pre>f(1)</pre></td></tr></tbody></table>"""
    assert text(page) == (
        "Table 1. Rates\n\n| Chip | Rate / FP16 | Rate / FP8 |\n| --- | --- | --- |\n| A | 1 | 2 |\n"
        "| A | same \\| both | same \\| both |\n| B new | x; y | `f(1)` |"
    )


def test_a_table_without_header_has_an_empty_one() -> None:
    page = "<table><tr><td>a</td><td>1</td></tr><tr><td>b</td><td>2</td></tr></table>"
    assert text(page) == "|  |  |\n| --- | --- |\n| a | 1 |\n| b | 2 |"


def test_layout_tables_are_no_tables() -> None:
    page = "<table><tr><td>menu</td><td><h2>Title</h2><p>Words.</p><table><tr><th>k</th><td>v</td></tr></table></td></tr></table>"
    assert "## Title\n\nWords.\n\n" in text(page)


def test_listings_in_cells_keep_their_lines() -> None:
    page = "<table><tr><th>Name</th><th>Example</th></tr><tr><td>loop</td><td><pre>for x:\n    f()</pre></td></tr></table>"
    assert text(page) == "Name: loop\n\nExample:\n\n```\nfor x:\n    f()\n```"


def test_spans_beyond_reason_cost_nothing() -> None:
    begin = time.monotonic()
    row = '<tr><td colspan="99999999" rowspan="99999999">x</td><td>y</td></tr>'
    assert "x" in text(f"<table>{row * 2000}</table>")
    assert time.monotonic() - begin < 5


# --- API references ---

SPHINX = """<div class="body" role="main"><section><h1>API<a class="headerlink" href="#">¶</a></h1><p>Intro.</p>
<dl class="py function"><dt class="sig sig-object py" id="lang.load">
<span class="sig-prename descclassname"><span class="pre">lang.</span></span><span class="sig-name descname"><span
class="pre">load</span></span><span class="sig-paren">(</span><em class="sig-param"><span class="n">ptr</span></em>, <em
class="sig-param"><span class="n">mask</span><span class="o">=</span><span class="default_value">None</span></em><span
class="sig-paren">)</span><a class="reference internal" href="_modules/x.html"><span class="viewcode-link">[source]</span></a>
<a class="headerlink" href="#x">¶</a></dt><dd><p>Loads values.</p><dl class="field-list simple">
<dt class="field-odd">Parameters</dt><dd class="field-odd"><ul><li><p><strong>ptr</strong> – where</p></li></ul></dd></dl></dd></dl>
<dl class="py class"><dt class="sig sig-object py" id="lang.Tile"><em class="property">class </em><span
class="sig-prename descclassname">lang.</span><span class="sig-name descname">Tile</span><span class="sig-paren">(</span>n<span
class="sig-paren">)</span></dt><dd><p>A tile.</p><dl class="py method"><dt class="sig" id="lang.Tile.area"><span
class="sig-name descname">area</span><span class="sig-paren">()</span></dt><dd><p>Its area.</p></dd></dl>
<p>About the class again.</p></dd></dl><p>About the page again.</p></section></div>"""


def test_every_sphinx_entry_is_a_section_with_its_signature() -> None:
    assert headings(SPHINX) == [
        "API",
        "API › lang.load()",
        "API › lang.Tile()",
        "API › lang.Tile() › lang.Tile.area()",
        "API › lang.Tile()",
        "API",
    ]
    entry = section(SPHINX, "load()")
    assert entry.startswith(
        "## lang.load()\n\n```\nlang.load(ptr, mask=None)\n```\n\nLoads values.\n\nParameters\n: - ptr – where"
    )
    assert "class lang.Tile(n)" in text(SPHINX)


DOXYGEN = """<div id="top"><div id="titlearea">Project</div></div><div class="header"><div class="headertitle"><div
class="title">Streams</div></div></div><div class="contents">%s<h2 class="groupheader">Functions</h2>
<h2 class="memtitle"><span class="permalink"><a href="#a">&#9670;&nbsp;</a></span>hipOpen()</h2>
<div class="memitem"><div class="memproto"><table class="memname"><tr><td class="memname">hipError_t hipOpen </td><td>(</td>
<td class="paramtype">int * </td><td class="paramname"><em>fd</em>, </td></tr><tr><td></td><td></td><td>unsigned </td>
<td><em>flags</em> </td></tr><tr><td></td><td>)</td></tr></table></div><div class="memdoc"><p>Opens it.</p>
<dl class="params"><dt>Parameters</dt><dd><table class="params"><tr><td class="paramdir">[in]</td><td
class="paramname">fd</td><td>the place</td></tr></table></dd></dl></div></div></div>"""


def test_doxygen_members() -> None:
    page = DOXYGEN % ("<p>Words about streams.</p>" * 10)
    entry = section(page, "hipOpen()")
    assert "```\nhipError_t hipOpen (int * fd, unsigned flags)\n```\n\nOpens it." in entry
    assert "fd" in entry.partition("Opens")[2]
    assert "the place" in entry
    old = re.sub(r"<h2 class=\"memtitle\">.*?</h2>", "", page, flags=re.DOTALL)
    assert "Opens it." in section(old, "hipOpen()")


def test_terms_that_are_words_stay_in_their_section() -> None:
    page = "<h1>Words</h1><dl><dt>warp</dt><dd>32 threads</dd><dt>wave</dt><dd><p>64 lanes</p><p>or 32</p></dd></dl>"
    assert headings(page) == ["Words"]
    assert text(page) == "# Words\n\nwarp\n: 32 threads\n\nwave\n: 64 lanes\n\n  or 32"


def test_signatures_in_plain_definition_lists() -> None:
    page = "<h1>C</h1><dl><dt><code>int open(const char *p, int n)</code></dt><dd>Opens.</dd></dl>"
    assert headings(page) == ["C › open()"]


# --- encodings and bad input ---


@pytest.mark.parametrize(
    "charset", ["gbk", "shift_jis", "euc-kr", "windows-1251", "iso-8859-1", "utf-8", "iso-2022-jp"]
)
def test_the_declared_charset(charset: str) -> None:
    words = {"gbk": "内核 和 内存", "shift_jis": "カーネルとメモリ", "iso-2022-jp": "カーネルとメモリ", "euc-kr": "커널 메모리",
             "windows-1251": "ядро и память", "iso-8859-1": "Größe × 2", "utf-8": "Größe – 内存"}[charset]  # fmt: skip
    page = f'<html><head><meta charset="{charset}"></head><body><p>{words}</p></body></html>'
    assert text(page.encode(charset)) == words


def test_a_byte_order_mark_and_http_equiv() -> None:
    page = "<html><head><meta http-equiv='Content-Type' content='text/html; charset=koi8-r'></head><p>память</p></html>"
    assert text(page.encode("koi8-r")) == "память"
    assert text(page.encode("utf-16")) == "память"


def test_broken_markup_of_any_depth_keeps_its_words() -> None:
    assert text("<p>a<b>b</p><td>c</i></div><h2>d") == "ab\n\nc\n\n## d"
    deep = text("<div>" * 30_000 + "deep" + "<span>more " * 5_000)
    assert deep.startswith("deep")
    assert deep.count("more") == 5_000


def test_tags_that_xhtml_closes_at_once() -> None:
    page = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x.js"/></head>'
    assert (
        text(page + '<body><a id="x"/><p>Words.</p><iframe src="y"/><p>More.</p></body></html>')
        == "Words.\n\nMore."
    )


@pytest.mark.parametrize(
    "unit",
    [
        "<div>x",
        "<span class=a{0}>x",
        "<font size={0}>x<p>",
        "<b><i>x</b><p>",
        "<a name=n{0}>x<p>",
        "<table><tr><td>x",
    ],
)
def test_tags_that_are_never_closed_cost_no_square(unit: str) -> None:
    page = "".join(unit.format(i) for i in range(12_000))
    begin = time.process_time()
    assert text(page).count("x") == 12_000
    assert time.process_time() - begin < 5


def test_tags_in_scripts_and_comments_are_none() -> None:
    noise = "<script>" + "'<div>'" * 60_000 + "</script><!--" + "<div>" * 9_000 + "-->"
    assert headings(f"<h1>T</h1>{noise}<div><table><tr><th>a<td>1</table></div><h2>U</h2>x") == [
        "T",
        "T › U",
    ]


def test_a_page_without_text_is_refused() -> None:
    for page in ("<html><body><script>render()</script></body></html>", "<html></html>"):
        with pytest.raises(Unreadable, match="no text in the page"):
            load(page)


def test_html_by_content_in_a_file_without_suffix() -> None:
    assert load("<!DOCTYPE html><html><h1>x</h1><p>y</p></html>", name="page").title == "x"


def test_a_large_page_on_one_line_takes_linear_time() -> None:
    def seconds(count: int) -> float:
        page = (
            "<html><body>"
            + "<h2>T</h2><p>Some <b>words</b> of it.</p><div class=x>y</div>" * count
            + "</body></html>"
        )
        begin = time.process_time()
        load(page)
        return time.process_time() - begin

    seconds(10)
    assert seconds(8_000) < 25 * max(0.02, seconds(1_000))


def test_ingested_with_lines_of_the_rendered_text(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "api.html").write_text(SPHINX)
    assert ingest_paths(kb, [tmp_path / "api.html"]).added == 1
    hit = kb.query("load values").hits[0]
    stored = load(SPHINX).text
    assert stored is not None
    assert "\n".join(stored.split("\n")[hit.start_line - 1 : hit.end_line]) == hit.text


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.skip = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.skip += tag in ("script", "style", "head")

    def handle_endtag(self, tag: str) -> None:
        self.skip -= tag in ("script", "style", "head")

    def handle_data(self, data: str) -> None:
        if not self.skip:
            self.words += re.findall(r"\w+", data)


def test_no_word_of_a_real_manual_is_lost(shared: Path) -> None:
    for path in sorted((shared / "documents").glob("*.html")):
        document = load(path.read_bytes(), path.name)
        assert document.text is not None
        assert len(document.sections) > 4
        source = _Words()
        source.feed(path.read_text())
        kept = set(re.findall(r"\w+", document.text))
        lost = {word for word in source.words if word not in kept}
        assert len(lost) < 0.02 * len(set(source.words)), lost


def test_the_tree_is_shallow_enough_to_recurse() -> None:
    root, _ = tree.parse("<div>" * 3_000 + "x")
    assert root.text().strip() == "x"
