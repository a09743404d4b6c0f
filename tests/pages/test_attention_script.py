"""The script of the attention page shows the weights that it is given, in words, lists and tables."""

import pytest
import torch
from pages.test_attention_page import data_of, page_of, random_weights
from scripts import Elements, needs_node, run_script

from chargpt.analysis.heads import PATTERNS, measure_heads

pytestmark = needs_node
TEXT = "He (ab) said\nso.\n" * 2
READY = """
while (document.body.dataset.state !== "complete") await new Promise(resolve => setTimeout(resolve, 1));
const at = async (layer, head, i, column) => {
  show(maps.findIndex(map => map.layer === layer && map.head === head));
  mark(i, column);
  await new Promise(resolve => setTimeout(resolve, 5));
};
const lines = id => byId(id).children.map(item => item.children.map(part => part.textContent));
"""


@pytest.fixture(scope="module")
def weights() -> torch.Tensor:
    return random_weights(len(TEXT))


@pytest.fixture(scope="module")
def page(weights) -> str:
    return page_of(weights, TEXT)


def percent(weight: float) -> float:
    return pytest.approx(100 * weight, abs=0.8)


@pytest.mark.parametrize(("layer", "head", "marked"), [(0, 0, 5), (1, 2, 20), (1, 0, len(TEXT) - 1)])
def test_a_marked_character_has_its_strongest_weights_in_both_directions(page, weights, layer, head, marked):
    code = f'{READY} await at({layer}, {head}, {marked}); return [byId("said").textContent, lines("to"), lines("from")];'
    said, to, attended_by = run_script(page, code)
    row, column = weights[layer, head, marked, : marked + 1], weights[layer, head, marked + 1 :, marked]
    assert f"(character {marked + 1} of {len(TEXT)})" in said
    best = int(row.argmax())
    assert said.endswith("to itself" if best == marked else f", {marked - best} back")
    for lines, expected in ((to, row), (attended_by, column)):
        drawn = ((255 * expected.sqrt()).round() / 255) ** 2  # from 8 bits each
        strongest = [value for value in drawn.sort(descending=True).values[:5].tolist() if value >= 0.0005]
        assert [float(line[1].removesuffix(" %")) for line in lines] == [percent(value) for value in strongest]
    assert float(said.split(" gives ")[1].split(" %")[0]) == percent(row[best].item())


def test_a_pointed_at_place_of_the_map_says_its_own_weight(page, weights):
    said = run_script(page, f'{READY} await at(0, 1, 12, 3); return byId("said").textContent;')
    assert said.endswith("9 back") and float(said.split(" gives ")[1].split(" %")[0]) == percent(weights[0, 1, 12, 3].item())


def test_a_mean_is_that_of_its_heads(page, weights):
    code = f"{READY} return [maps[0], maps[5]].map(map => [map.short, Array.from(weightsOf(map))]);"
    (first, every), (second, layer) = run_script(page, code)
    rows, columns = torch.tril_indices(len(TEXT), len(TEXT))
    assert (first, second) == ("all", "2 mean")
    expected = weights.flatten(0, 1).mean(dim=0)[rows, columns]
    assert ((torch.tensor(every) / 255) ** 2 - expected).abs().max() < 0.008
    expected = weights[1].mean(dim=0)[rows, columns]
    assert ((torch.tensor(layer) / 255) ** 2 - expected).abs().max() < 0.008


def test_the_measures_stand_in_the_row_and_the_column_of_their_head(page, weights):
    facts = measure_heads(weights, TEXT)
    assert set(facts.scores) <= set(PATTERNS)
    cells, columns = [element.text for element in Elements(page).all if element.tag in ("td", "th")], 3 + len(facts.scores)
    names, chance, *rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    labels, given = (data_of(page, "facts")[name] for name in ("labels", "characters"))
    assert [labels[i] for i in given] == list(TEXT.replace(" ", "␣").replace("\n", "↵"))
    assert names == ["head", "entropy", "distance", *facts.scores]
    assert chance == ["by chance", "", "", *(f"{facts.chance[name]:.2f}" for name in facts.scores)]
    assert [row[0] for row in rows] == [f"{layer + 1}.{head + 1}" for layer in range(2) for head in range(3)]
    for row in rows:
        layer, head = (int(number) - 1 for number in row[0].split("."))
        values = [facts.entropy[layer, head], facts.distance[layer, head], *(s[layer, head] for s in facts.scores.values())]
        assert [float(cell) for cell in row[1:]] == pytest.approx(values, abs=0.051)
