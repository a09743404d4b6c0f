"""A text comes out the same whether it is normalised as a whole or in pieces."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from chargpt.text.normalization import TextNormalizer

TRICKY = st.text(st.sampled_from("\r\n\t .'aAb1Σσς\u0301\u0338é가\u1100\u1161\u11a8ﬁ가か\u3099中文İß"))


NORMALIZERS = st.builds(
    TextNormalizer,
    newlines=st.sampled_from(["keep", "fold"]),
    normalize=st.sampled_from(["none", "NFC", "NFKC"]),
    lowercase=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(TRICKY, TRICKY, NORMALIZERS)
@example("aΣa", "", TextNormalizer(newlines="keep", normalize="none", lowercase=True))
def test_a_text_may_be_cut_where_it_is_said_to_be_safe(text, more, normalizer):
    cut = normalizer.safe_cut(text)
    assert normalizer.apply(text[:cut]) + normalizer.apply(text[cut:] + more) == normalizer.apply(text + more)
