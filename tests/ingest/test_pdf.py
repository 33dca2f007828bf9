# ruff: noqa: E501 - pages are easier to read unbroken
"""Pages as they are read: order, headings, tables."""

from __future__ import annotations

import random
import re

import pytest
from pdf_writer import HEIGHT, WIDTH, Pdf, load, report, sentences, text

# --- reading order ---


@pytest.mark.parametrize("order", ["columns", "rows", "shuffled"])
@pytest.mark.parametrize("columns", [2, 3])
def test_columns_are_read_one_after_the_other(columns: int, order: str) -> None:
    pdf = Pdf().page()
    pdf.text(150, 60, "A title across the columns", 20, "bold")
    width = 500 / columns
    words = 4 if columns == 2 else 3
    placed = [
        (60 + width * c, 100 + 12 * i, line)
        for c in range(columns)
        for i, line in enumerate(sentences("abc"[c], 30, words))
    ]
    if order == "rows":
        placed.sort(key=lambda p: p[1])
    elif order == "shuffled":
        random.Random(3).shuffle(placed)
    for x, y, line in placed:
        pdf.text(x, y, line, 9 if columns == 2 else 7)
    pdf.text(
        60, 500, "What follows below spans the whole page again and is read last, as it is wide enough.", 9
    )
    found = text(pdf).replace("\n", " ").split()
    expected = [f"{c}{i}word{j}" for c in "abc"[:columns] for i in range(30) for j in range(words - 1)]
    assert [w for w in found if "word" in w] == expected
    assert found[-1] == "enough."
    assert load(pdf).title == "A title across the columns"


@pytest.mark.parametrize("by_rows", [False, True])
def test_wide_blanks_of_justified_lines_are_no_gutters(by_rows: bool) -> None:
    placed = []
    for c in range(2):
        for i in range(24):
            if i % 3:
                placed.append(
                    (60 + 260 * c, 100 + 12 * i, f"{'ab'[c]}{i} running text of the column that goes")
                )
            else:
                parts = [f"{'ab'[c]}{i} short", "words set", "wide apart"]
                placed += [(60 + 260 * c + 80 * k, 100 + 12 * i, part) for k, part in enumerate(parts)]
    pdf = Pdf().page()
    for x, y, part in sorted(placed, key=lambda p: (p[1], p[0])) if by_rows else placed:
        pdf.text(x, y, part)
    assert re.findall(r"\b[ab]\d+\b", text(pdf)) == [f"{c}{i}" for c in "ab" for i in range(24)]


def test_a_table_without_lines_is_read_by_rows() -> None:
    pdf = Pdf().page()
    pdf.text(72, 80, "Some words come before the table here.")
    rows = [
        ("Register", "Width", "Meaning"),
        ("CTRL", "32", "control of the unit"),
        ("STAT", "16", "status"),
        ("DATA", "64", "payload"),
    ]
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            pdf.text(72 + 130 * j, 110 + 14 * i, cell)
    pdf.text(72, 190, "Some words come after the table here.")
    assert text(pdf) == (
        "Some words come before the table here.\n\n| Register | Width | Meaning |\n| --- | --- | --- |\n"
        "| CTRL | 32 | control of the unit |\n| STAT | 16 | status |\n| DATA | 64 | payload |\n\n"
        "Some words come after the table here."
    )


@pytest.mark.parametrize("middle", [False, True])
def test_wrapped_cells_of_a_table_without_lines_stay_in_their_row(middle: bool) -> None:
    pdf = Pdf().page()
    pdf.text(72, 80, "Some words come before the table here.")
    for x, cell in ((72, "Register"), (200, "Meaning")):
        pdf.text(x, 110, cell)
    for i in range(4):
        y = 130 + 45 * i
        pdf.text(72, y + (12 if middle else 0), f"CTRL{i}")
        pdf.lines(200, y, [f"controls the unit {i} in all", "the ways that there are", "and some more"])
    rows = "\n".join(
        f"| CTRL{i} | controls the unit {i} in all the ways that there are and some more |" for i in range(4)
    )
    assert text(pdf).endswith(f"\n\n| Register | Meaning |\n| --- | --- |\n{rows}")


@pytest.mark.parametrize("rotate", [90, 180, 270])
def test_pages_are_read_as_they_are_shown(rotate: int) -> None:
    """The text is written turned, and the page turned back."""
    pdf = Pdf().page(rotate)
    matrices = {90: "0 1 -1 0 {y} {x}", 180: "-1 0 0 -1 {rx} {y}", 270: "0 -1 1 0 {ry} {rx}"}
    for i, line in enumerate(["First line of the page.", "Second line of the page."]):
        x, y = 72, 80 + 12 * i
        matrix = matrices[rotate].format(x=x, y=y, rx=(WIDTH if rotate == 180 else HEIGHT) - x, ry=WIDTH - y)
        if rotate == 90:
            matrix = f"0 1 -1 0 {y} {x}"
        pdf.pages[-1].append(f"BT /plain 10 Tf {matrix} Tm ({line}) Tj ET")
    assert text(pdf) == "First line of the page. Second line of the page."


# --- paragraphs, headings, pages ---


def test_headings_running_heads_hyphens_and_pages() -> None:
    document = load(report())
    assert document.text is not None
    lines = document.text.split("\n")
    assert [s.heading_path for s in document.sections][:4] == [
        "Chapter B", "Chapter B › 1.1 Details", "Chapter C", "Chapter C › 2.1 Details",
    ]  # fmt: skip
    assert "Words of chapter 1 about interconnects and how they are used in practice, with an end." in lines
    assert (
        "The details of chapter 1 are many and the last of them continues here on page 2 until its end."
        in lines
    )
    for gone in ("Vendor Guide", "Revision", "\n1\n", "\n4"):
        assert gone not in document.text + "\n"
    third = next(s for s in document.sections if s.heading_path == "Chapter D")
    assert document.page_of(third.start_line) == 3
    assert document.page_of(lines.index("## 2.1 Details") + 1) == 2


def test_the_outline_tells_the_level_of_headings() -> None:
    pdf = Pdf()
    for i, name in enumerate(["Alpha", "Beta"]):
        pdf.page().text(72, 80, f"{i + 1} {name}", 11, "bold")
        pdf.lines(
            72, 110, ["Words about it that are many enough to be", "the running text of this little page."]
        )
    pdf.outline = [("1 Alpha", 1), ("Beta", 2)]
    assert [s.heading_path for s in load(pdf).sections] == ["1 Alpha", "2 Beta"]


def test_the_title_is_what_the_file_says_unless_that_is_a_file_name() -> None:
    for title, expected in (
        ("Memory Guide", "Memory Guide"),
        ("Microsoft Word - x.docx", "Chapter B"),
        ("", "Chapter B"),
    ):
        pdf = report(2)
        pdf.title = title
        assert load(pdf).title == expected


def test_code_keeps_its_indentation() -> None:
    pdf = Pdf().page()
    pdf.lines(72, 80, ["A loop that adds is written like this, with a fixed width:", ""])
    pdf.lines(
        72,
        120,
        ["for i in range(n):", "    if x[i] > 0:", "        total += x[i]", "", "print(total)"],
        9,
        "mono",
    )
    pdf.lines(72, 200, ["And some more words follow after the listing, enough of them to be text."])
    code = "```\nfor i in range(n):\n    if x[i] > 0:\n        total += x[i]\n\nprint(total)\n```"
    assert f":\n\n{code}\n\nAnd" in text(pdf)


def test_documents_in_one_width_throughout() -> None:
    prose = Pdf().page()
    prose.lines(
        72,
        80,
        [
            "This is a specification as they were set in former",
            "times, with a typewriter and without any code.",
        ],
        10,
        "mono",
    )
    assert "```" not in text(prose)
    listing = Pdf().page()
    listing.lines(72, 80, ["int add(int a, int b) {", "  return a + b;", "}"], 10, "mono")
    assert text(listing) == "```\nint add(int a, int b) {\n  return a + b;\n}\n```"


def test_ligatures_powers_and_underscores_that_are_drawn() -> None:
    pdf = Pdf().page().text(72, 80, "speci\xdec names are found by", font="ligature")
    pdf.text(72, 92, "asn").line(88.3, 93, 91.5, 93).text(91.7, 92, "node in less than 10").text(
        182.3, 88, "6", 6
    )
    pdf.text(190, 92, "steps")
    assert text(pdf) == "specific names are found by asn_node in less than 10^6 steps"


def test_lists_are_items() -> None:
    pdf = Pdf().page()
    pdf.text(72, 80, "The steps to be taken are these, in order of their weight:")
    for i, item in enumerate(["load the tile into memory", "compute on it and then"]):
        pdf.text(80, 100 + 30 * i, "\x95").text(92, 100 + 30 * i, item).text(
            92, 112 + 30 * i, "go on with the next"
        )
    assert text(pdf).endswith(
        "\n\n- load the tile into memory go on with the next\n- compute on it and then go on with the next"
    )


# --- tables ---


def test_a_table_with_lines_and_a_wrapped_cell() -> None:
    pdf = Pdf().page()
    pdf.text(72, 80, "Before the table.")
    pdf.grid([72, 172, 272, 472], [100, 116, 144, 160])
    for x, y, cell in [(75, 111, "Field"), (175, 111, "Bits"), (275, 111, "Meaning"), (75, 127, "KIND"), (175, 127, "8"),
                       (275, 127, "kind of the page, which"), (275, 139, "may be | compressed"), (75, 155, "VOL"), (175, 155, "1")]:  # fmt: skip
        pdf.text(x, y, cell)
    pdf.text(72, 190, "After the table.")
    assert text(pdf) == (
        "Before the table.\n\n| Field | Bits | Meaning |\n| --- | --- | --- |\n"
        "| KIND | 8 | kind of the page, which may be \\| compressed |\n| VOL | 1 |  |\n\nAfter the table."
    )


@pytest.mark.parametrize("repeated", [True, False])
def test_a_table_that_goes_on_has_its_header_on_every_page(repeated: bool) -> None:
    pdf = Pdf()
    header = ["Name", "Offset", "Use"]
    for n in range(3):
        rows = [[f"REG{n}{i}", f"0x{n}{i}", f"use {n}{i}"] for i in range(8)]
        pdf.page().table(72, 100, [header, *rows] if repeated or n == 0 else rows)
    document = load(pdf)
    assert document.text is not None
    tables = document.text.split("\n\n")
    assert [t.split("\n")[0] for t in tables] == ["| Name | Offset | Use |"] * 3
    assert [len(t.split("\n")) for t in tables] == [10] * 3
    line = document.text.split("\n").index("| REG23 | 0x23 | use 23 |") + 1
    assert document.page_of(line) == 3


def test_a_cell_over_several_columns_and_rows() -> None:
    pdf = Pdf().page()
    for x0, y0, x1, y1 in [(72, 100, 372, 100), (172, 116, 372, 116), (72, 132, 372, 132), (72, 148, 372, 148),
                           (72, 100, 72, 148), (172, 100, 172, 148), (272, 116, 272, 148), (372, 100, 372, 148)]:  # fmt: skip
        pdf.line(x0, y0, x1, y1)
    for x, y, cell in [
        (75, 120, "Chip"),
        (200, 111, "Rate"),
        (175, 127, "FP16"),
        (275, 127, "FP8"),
        (75, 143, "A"),
        (175, 143, "1"),
        (275, 143, "2"),
    ]:
        pdf.text(x, y, cell)
    assert text(pdf) == "| Chip | Rate / FP16 | Rate / FP8 |\n| --- | --- | --- |\n| A | 1 | 2 |"
