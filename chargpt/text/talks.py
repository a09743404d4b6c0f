"""Whether lines with times and names are a chat: not every text has such lines, and a diary or a log has them too."""

import re

# Evidence of a chat: what WhatsApp writes in place of pictures, its mark of direction, and its first line, which says that all
# is encrypted; or people who answer each other within minutes. Evidence against it: what machines write.
NOTICE = re.compile(
    r"(?i)[^:\d/\[\]=_]*(encr[iy]p|verschlüssel|chiffr|cifra|cript|kr[iy]pt|szyfr|шифр|şifre|salau|salat|titkos|κρυπτο|mã hóa|"
    r"加密|暗号|암호|تشفير|مشفر|מוצפ|एन्क्रिप्ट|เข้ารหัส)[^:\d/\[\]=_]*"
)
OF_A_PROGRAM = re.compile(r"null|<[a-z_]+>")  # no picture
NOT_A_PERSON = re.compile(r"[a-z]*\d|[_/\\\[\]<>=@]|[a-z]+$")  # how the name of a machine or of a program begins
NOT_SAID = re.compile(r"\d|[=_/\\]")  # in what a machine writes, or a diary of measurements
# Minutes to an answer, and the share of all messages that are sent so soon after another one, of these the share by somebody
# else, and of all that have a name, or what a machine may write.
ANSWER, SOON, ANSWERS, NAMED, MOST_NOT_SAID = 15, 0.5, 0.2, 0.7, 0.5
# What stands for a picture: as WhatsApp has it in any language, whose mark of direction is before what the program wrote, or a
# path, as iMessage has it.
OMITTED = re.compile(
    r"\u200e.*|<[^<>]{3,50}>|\S.*\.\w{2,4} \([^()]{4,40}\)|null|(?:~|\w:)?(?:[/\\][^:]*)?\b[Aa]ttachments[/\\].+\.\w{2,5}"
)


def is_marked(pairs: list[tuple[str, str]]) -> bool:
    """Whether a chat program has left its marks in what was said, and by whom."""
    said = [text.strip() for name, text in pairs if name]
    are_omitted = any(OMITTED.fullmatch(one) and not OF_A_PROGRAM.fullmatch(one) for one in said)
    return are_omitted or NOTICE.fullmatch(pairs[0][1]) is not None


def is_talk(stamps: list[re.Match[str]], pairs: list[tuple[str, str]]) -> bool:
    """Whether people answer each other within minutes, as nobody does who keeps a diary. An empty name is nobody's."""
    names, said = [name for name, _ in pairs], [text for name, text in pairs if name]
    if any(map(NOT_A_PERSON.match, names)) or sum(map(bool, map(NOT_SAID.search, said))) > MOST_NOT_SAID * len(said):
        return False
    whens = [sorted(filter(None, stamp.groups()), key=len) for stamp in stamps]  # a time, and a date, which is longer
    days = [day for _, *day in whens]
    minutes = [60 * int(hour) + int(minute) for hour, minute in (re.split("[:.]", time) for time, *_ in whens)]
    soon = [i for i in range(1, len(names)) if days[i] == days[i - 1] and (minutes[i] - minutes[i - 1]) % 720 <= ANSWER]
    answers = sum(names[i] != names[i - 1] for i in soon if names[i] and names[i - 1])
    return len(soon) >= SOON * len(names) and answers >= ANSWERS * len(soon) and sum(map(bool, names)) >= NAMED * len(names)
