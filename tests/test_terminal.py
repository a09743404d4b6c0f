from chargpt.terminal import escape_controls


def test_control_characters_are_escaped_and_scripts_are_not():
    assert escape_controls("a\x1b]52;c;x\x07\r\0\x7f\x9b") == "a\\x1b]52;c;x\\x07\\r\\x00\\x7f\\x9b"
    assert escape_controls("\u202eabc\u202c\u2066\u2028\U000e0041") == "\\u202eabc\\u202c\\u2066\\u2028\\U000e0041"
    plain = "tab\tline\nДа 中文 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 שָׁלוֹם\u200f 👩\u200d🔬 e\u0301"
    assert escape_controls(plain) == plain
