"""Formats of texts with marks in them, which are read as they are. The advice is a command that writes the text alone. Python
runs each of these commands on every system. They have no double quotes, no exclamation marks, no pair of backslashes and none
before a dollar, which a shell would change."""

from pathlib import Path
from typing import Any

from chargpt.files import WINDOWS
from chargpt.project import shell_word
from chargpt.text.kind import Kind, finder
from chargpt.text.source import Source, plain_name

READ = "open(sys.argv[1]).read()"
TAGS = "'(?si)<(script|style).*?</(script|style)>|<[^>]*>'"
BREAKS = "r'(?i)<br[^>]*>|</(p|div|h[1-6]|li|tr|pre)>'"  # tags of HTML that end a line


def command_for(code: str, source: Source) -> str:
    """The command that runs `code` of Python on a file, and writes what it prints into another."""
    name = "FILE" if source.path is None else str(source.path)
    new = shell_word(Path(plain_name(Path(name))).stem + "-text.txt")  # never the file itself, which a shell empties first
    return f'{"py" if WINDOWS else "python3"} -X utf8 -c "{code}" {shell_word(name)} > {new}'


def _row(name: str, suffixes: str, begins: str, code: str, **more: Any) -> Kind:
    more["advice"] = lambda source, *_: f", with its markup; for its text alone: {command_for(code, source)}"
    return Kind(name=name, suffixes=tuple(suffixes.split()), begins=begins, **more)


# The times of subtitles, with what is before them in a cue; what is not shown; and tags, such as <i>, <00:01.500> and {{\an8}}.
CUE_TAGS = r"</?[A-Za-z\d][^>\n]*>|\{\W[^}\n]*\}"
TIMES = rf"(?m)^(WEBVTT|NOTE|STYLE|REGION)\b(.*\n)+?\n|^(\S*\n)?.*-->.*$\n?|^[\d:.]+,[\d:.]+$\n?|{CUE_TAGS}"
# Captions roll: a cue repeats the end of the one before, or its line with more words.
ROLLED = r"(?m)^((?:.+\n){1,4})(?=\1)|^(.+)\n(?=\2 )"
CUES = (
    rf"import html, re, sys; t = html.unescape(re.sub(r'{TIMES}', '', {READ} + '\n'))"
    r"; t = re.sub(r'(?m)^[ \t\xa0]*\n|[ \t\xa0]+$', '', t)"
    rf"; print(re.sub(r'{ROLLED}', '', t))"
)
# A game of chess on a line, without its headers, comments, lines of play that were not played, and marks such as $1 and ?!.
GAMES = (
    rf"import functools, re, sys; t = re.sub(r'(?m)^\[\w+ \x22.*\x22\]\s*$|^%.*', '\f', {READ})"
    r"; t = re.sub(r'(?s)\{.*?\}|;[^\n]*|\x24\d+|[?\x21]+', '', t)"
    r"; t = functools.reduce(lambda t, _: re.sub(r'\([^()]*\)', '', t), range(9), t)"
    r"; print('\n'.join(' '.join(re.sub(r'\d+\.\.\.', '', g).split()) for g in t.split('\f') if g.strip()))"
)
HTML_TEXT = f"import html, re, sys; print(html.unescape(re.sub({TAGS}, '', re.sub({BREAKS}, '\\n', {READ}))))"
# A feed or an export of notes has HTML in its texts.
XML_TEXT = (
    "import html, re, sys, xml.etree.ElementTree as tree; t = tree.parse(sys.argv[1]).getroot().itertext()"
    rf"; f = lambda t: html.unescape(re.sub(r'<[/?\x21A-Za-z][^<>]*>', '', re.sub({BREAKS}, '\n', t)) if '</' in t else t)"
    r"; print('\n'.join(filter(None, map(str.strip, map(f, t)))))"
)
# A line of a song, or each of its words, has a time; there may be a space after it, before it, or both.
LRC_TIME = r"\d+:\d+[.:]?\d*"
LRC_TAGS = rf"(?m)^\[[a-z#]+:.*\]\s*$\n?|\[{LRC_TIME}\] ?|(?<=[\s\]])<{LRC_TIME}> ?|<{LRC_TIME}>"
LRC_TEXT = f"import re, sys; print(re.sub(r'{LRC_TAGS}', '', {READ}))"
ASS_TEXT = (
    rf"import re, sys; t = re.findall(r'(?m)^Dialogue:(?:[^,\n]*,){{9}}(.*)', {READ})"
    r"; print('\n'.join(re.sub(r' *\x5c[Nnh] *', ' ', re.sub(r'\{[^}]*\}', '', one)) for one in t))"
)
FASTQ_TEXT = rf"import re, sys; print('\n'.join(re.findall(r'(?m)^@.*\n(.*)\n\+', {READ})))"
MARKUP = (
    _row("HTML", ".html .htm .xhtml", r"(?i)(<\?xml[^>]*>\s*)?<(!doctype\s+html|html)\b", HTML_TEXT),
    _row("XML", ".xml .ttml", r"<\?xml\s", XML_TEXT, find=finder("xml_rows", r"<\?xml\s")),
    _row("WebVTT", ".vtt", r"WEBVTT(\s|$)", CUES),
    _row("SRT", ".srt", r"\d+[ \t]*\r?\n\d+:\d\d:\d\d[,.]\d{1,3} --> \d+:\d\d:\d\d", CUES),
    _row("SBV subtitles", ".sbv", r"\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}\s", CUES),
    _row("ASS subtitles", ".ass .ssa", r"\[Script Info\]", ASS_TEXT),
    _row("LRC", ".lrc", r"(\[[a-z#]+:[^\]\n]*\]\s*)*\[\d+:\d\d\.\d{2,3}\]", LRC_TEXT),
    _row("PGN", ".pgn", r"\[(Event|Site|White|FEN) \"", GAMES),
    _row("FASTQ", ".fastq .fq", r"@[^\n]*\n[A-Za-z.]+\s*\n\+", FASTQ_TEXT),
)
