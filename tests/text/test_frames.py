"""What stands around a text is counted and, with data.frame=drop, left out of each file."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import text_of, write

LICENCE = "This eBook is for the use of anyone anywhere.\n" * 9
FRAMES = {  # what stands before a text, and after it
    "of today": (
        f"The Project Gutenberg eBook of X\n\n{LICENCE}\n*** START OF THE PROJECT GUTENBERG EBOOK X,\nOR Y ***\n\n",
        f"\n*** END OF THE PROJECT GUTENBERG EBOOK X, OR Y ***\n\n{LICENCE}",
    ),
    "of 2005": (
        f"The Project Gutenberg EBook of X, by Z\n{LICENCE}***START OF THE PROJECT GUTENBERG EBOOK X***\n\n\n",
        f"\n\nEnd of the Project Gutenberg EBook of X, by Z\n\n*** END OF THIS PROJECT GUTENBERG EBOOK X ***\n{LICENCE}",
    ),
    "of 1993": (
        f"The Project Gutenberg Etext of X\n**START**THE SMALL PRINT!**\n{LICENCE}*END*THE SMALL PRINT! FOR ETEXTS*END*\n",
        f"\nEnd of Project Gutenberg's X, by Z\n\n{LICENCE}",
    ),
    "of 2003": (  # with the small print behind the book
        f"The Project Gutenberg EBook of X, by Z\n{LICENCE}*** START OF THE PROJECT GUTENBERG EBOOK, X ***\n",
        f"\n*** END OF THE PROJECT GUTENBERG EBOOK, X ***\nxyz10.txt\n***START**THE SMALL PRINT!FOR EBOOKS**START***\n{LICENCE}"
        "*END THE SMALL PRINT! FOR PUBLIC DOMAIN EBOOKS*Ver.02/11/02*END*\n\n",
    ),
    "of 1998": (
        f"*The Project Gutenberg Etext of X*\n#1 in our series\n***START**THE SMALL PRINT!**START***\n{LICENCE}"
        "*END*THE SMALL PRINT!*\n",
        f"\nEnde dieses Projekt Gutenberg Etextes X\n{LICENCE}",
    ),
    "indented": (
        "\n   The Project Gutenberg eBook of X\n  *** START OF THE PROJECT GUTENBERG EBOOK X ***\n",
        f"\n  *** END OF THE PROJECT GUTENBERG EBOOK X ***\n{LICENCE}",
    ),
    "of Japan": (
        f"水車\n夏目\n\n{'-' * 55}\n【テキスト中に現れる記号について】\n\n《》：ルビ\n{'-' * 55}\n",
        "\n底本：「水車」文庫\n入力：某\n校正：某\nこのファイルは、インターネットの図書館で作られました。\n",
    ),
    "with an end alone": ("", f"\nThe End of Project Gutenberg Etext of X\n{LICENCE}"),
    "of another site": (f"{LICENCE}===== START OF TEXT =====\n", f"\n===== END OF TEXT =====\n{LICENCE}"),
}
BODY = st.lists(st.sampled_from(["The sea was cold.", "CHAPTER I", "", "* * *", "the end of it", "-- he said"]), max_size=8)
BODIES = BODY.map(lambda lines: "\n".join(["It begins.", *lines, "It ended."]))


ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "shift_jis"])


@given(
    st.lists(st.tuples(BODIES, st.sampled_from([*FRAMES, ""])), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n"]),
    ENCODINGS,
)
def test_a_frame_is_left_out_file_by_file_and_counted_in_any_case(tmp_path, load, books, newline, encoding):
    folder, content, bodies = tmp_path / f"{len([*tmp_path.iterdir()])}", list[str](), list[str]()
    for number, (body, frame) in enumerate(books):
        before, after = FRAMES.get(frame, ("", ""))
        body = "\n".join(f"{line} {chr(number + 97) * 3}" for line in body.split("\n"))  # what files repeat is a frame too
        begins = "Project Gutenberg's Etext X\n" * (frame == "with an end alone")
        bodies.append(f"{begins}{chr(number + 97) * 3} {body}")
        content.append(f"{before}{bodies[-1]}{after}")
        write(folder / f"{number}.txt", content[-1].replace("\n", newline).encode(encoding))
    asked = {"separator": "@", "block_size": 1, "newlines": "fold", "encoding": "shift_jis"}
    kept, dropped = load(folder, **asked), load(folder, frame="drop", **asked)
    assert text_of(kept) == "@".join(content)
    assert [one.strip("\n") for one in text_of(dropped).split("@")] == [one.strip("\n") for one in bodies]
    framed = sum(frame != "" for _, frame in books)
    for corpus, what in ((kept, "; data.frame=drop leaves them out"), (dropped, ", left out")):
        notes = " ".join(map(str, corpus.notes))
        assert (f"around the text of {framed} file" in notes and what in notes) == (framed > 0)


SITES = {  # what stands before and after each page, by its number
    "English": ("Poems of the World - www.example.org\nHome | Poems | About\n\n", "\n\n(c) Example. All rights reserved.\n"),
    "Russian": ("Библиотека стихов\nГлавная | Стихи\n\n", "\n\nВсе права защищены.\n"),
    "numbered": ("Poem {n} of 120, read {n}7 times\n", "\nDownloaded on 2024-03-0{n} at 1{n}:30\n"),
    "with a licence": (
        "Poems of the World\n\n",
        "\n\n" + "".join(f"{k}. You may {k} copy this.\n" for k in "abcdefghijklmnopqrstu"),
    ),
}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1251"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_the_files_of_a_folder_repeat_is_their_frame(site, encoding, share, tmp_path, load):
    bodies = [f"The sea {letter * 3}\nis cold {letter * 3}" for letter in "klmnopqrst"]
    for number, body in enumerate(bodies):
        before, after = (side.format(n=number) * (number < share * len(bodies)) for side in SITES[site])
        write(tmp_path / "site" / f"{number}.txt", (before + body + after).encode(encoding))
    corpus = load(tmp_path / "site", frame="drop", separator="@", encoding="cp1251")
    assert ([one.strip("\n") for one in text_of(corpus).split("@")] == bodies) == (share == 1.0)
    assert bool(re.search("around the text of 10 files", str(corpus.notes))) == (share == 1.0)


def test_a_text_that_names_project_gutenberg_or_has_a_banner_stays(tmp_path, load):
    for text in (
        "I read it in a Project Gutenberg eBook.\nThe sea.\n",
        "# --- START OF the file\nx = 1\n",
        "The end of the sea\n",
        "A heading\n    START OF THE SEA\nIt was calm.\n    END OF THE SEA\nIt was not.\n",  # white space is no mark
    ):
        corpus = load(write(tmp_path / "a.txt", text * 3), frame="drop")
        assert text_of(corpus) == text * 3 and "around" not in str(corpus.notes)
