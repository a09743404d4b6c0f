"""What stands around a text is counted and, with data.frame=drop, left out of each file."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import text_of, write

LICENCE = "This eBook is for the use of anyone anywhere.\n" * 9
FRAMES = {  # what stands before a text, and after it
    "of today": (
        f"\ufeffThe Project Gutenberg eBook of X\n\n{LICENCE}\n*** START OF THE PROJECT GUTENBERG EBOOK X,\nOR Y ***\n\n",
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
    "with an end alone": ("", f"\nThe End of Project Gutenberg Etext of X\n{LICENCE}"),
    "of another site": (f"{LICENCE}===== START OF TEXT =====\n", f"\n===== END OF TEXT =====\n{LICENCE}"),
}
BODY = st.lists(st.sampled_from(["The sea was cold.", "CHAPTER I", "", "* * *", "the end of it", "-- he said"]), max_size=8)
BODIES = BODY.map(lambda lines: "\n".join(["It begins.", *lines, "It ended."]))


@given(st.lists(st.tuples(BODIES, st.sampled_from([*FRAMES, ""])), min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"]))
def test_a_frame_is_left_out_file_by_file_and_counted_in_any_case(tmp_path, load, books, newline):
    folder, content, bodies = tmp_path / f"{len([*tmp_path.iterdir()])}", list[str](), list[str]()
    for number, (body, frame) in enumerate(books):
        before, after = FRAMES.get(frame, ("", ""))
        body = "\n".join(f"{line} {number}" for line in body.split("\n"))  # what files repeat is a frame too
        begins = "Project Gutenberg's Etext X\n" * (frame == "with an end alone")
        bodies.append(f"{begins}{number} {body}")
        content.append(f"{before}{bodies[-1]}{after}")
        write(folder / f"{number}.txt", content[-1].replace("\n", newline).encode())
    asked = {"separator": "@", "block_size": 1, "newlines": "fold"}
    kept, dropped = load(folder, **asked), load(folder, frame="drop", **asked)
    assert text_of(kept) == "@".join(content).replace("\ufeff", "")
    assert [one.strip("\n") for one in text_of(dropped).split("@")] == [one.strip("\n") for one in bodies]
    framed = sum(frame != "" for _, frame in books)
    for corpus, what in ((kept, "; data.frame=drop leaves them out"), (dropped, ", left out")):
        notes = " ".join(map(str, corpus.notes))
        assert (f"around the text of {framed} file" in notes and what in notes) == (framed > 0)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_the_files_of_a_folder_repeat_is_their_frame(share, tmp_path, load):
    before, after = "Poems of the World - www.example.org\nHome | Poems | About\n\n", "\n\n(c) Example. All rights reserved.\n"
    bodies = [f"The sea {number}\nis cold {number}" for number in range(10)]
    for number, body in enumerate(bodies):
        is_framed = number < share * len(bodies)
        write(tmp_path / "site" / f"{number}.txt", before * is_framed + body + after * is_framed)
    corpus = load(tmp_path / "site", frame="drop", separator="@")
    assert ([one.strip("\n") for one in text_of(corpus).split("@")] == bodies) == (share == 1.0)
    assert bool(re.search("around the text of 10 files", str(corpus.notes))) == (share == 1.0)


def test_a_text_that_names_project_gutenberg_or_has_a_banner_stays(tmp_path, load):
    for text in (
        "I read it in a Project Gutenberg eBook.\nThe sea.\n",
        "# --- START OF the file\nx = 1\n",
        "The end of the sea\n",
    ):
        corpus = load(write(tmp_path / "a.txt", text * 3), frame="drop")
        assert text_of(corpus) == text * 3 and "around" not in str(corpus.notes)
