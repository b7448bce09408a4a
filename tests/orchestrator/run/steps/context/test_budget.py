from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import Message
from orchestrator.registry.prompts import prompt_set
from orchestrator.run.steps.context.budget import ContextBudget, ReclaimCost, asking_pays, condensing, sweeping
from orchestrator.run.steps.context.window import CallResult, Turn, Window

QUESTION = prompt_set("tiny").condense
OPENING = (Message("system", "Do it."), Message("user", "Task: gather."))
LENGTHS = st.lists(st.integers(0, 500), min_size=1, max_size=6)


def gathered(*lengths: int) -> Window:
    """Return a window with documents of these lengths, and with one more turn."""
    window = Window(OPENING)
    for length in lengths:
        window = window.add(Turn("read", document=CallResult(window.next_id, "a.txt", "t" * length)))
    return window.add(Turn("prune", "Pruned."))


def test_the_price_is_what_is_computed_for_each_token_freed() -> None:
    assert ReclaimCost(30, 60).price == 0.5
    assert ReclaimCost(30, 0).price == ReclaimCost(30, -5).price == float("inf")


@given(LENGTHS, st.data())
def test_sweeping_frees_what_is_pruned_and_computes_what_stays_behind_it(
    lengths: list[int], data: st.DataObject
) -> None:
    whole = gathered(*lengths)
    ids = data.draw(st.sets(st.sampled_from([one.id for one in whole.gathered]), min_size=1))
    window = whole.prune(ids)
    tokens = window.size  # one a character, so that nothing is estimated
    way, swept = sweeping(window, tokens), window.sweep()
    assert way.freed == tokens - swept.size
    same = next(n for n, (one, two) in enumerate(zip(whole.messages, swept.messages, strict=False)) if one != two)
    behind = sum(len(message.content) for message in swept.messages[same:-2])
    assert way.computed >= behind  # equal documents side by side look the same before and after
    assert sweeping(window, 3 * tokens).price == way.price


def test_nothing_pruned_is_nothing_to_sweep() -> None:
    assert sweeping(gathered(5, 5), 100) == ReclaimCost(0, 0)
    assert sweeping(gathered(5, 5), 100).price == float("inf")


def test_a_first_summary_is_taken_to_be_short_and_later_ones_to_be_like_the_last() -> None:
    window = gathered(4000)
    first = condensing(window, window.size, QUESTION)
    again = condensing(window.condense("s" * 2000).add(Turn("x", "t" * 2000)), window.size, QUESTION)
    assert 0 < first.price < 1
    assert again.price > first.price
    small = gathered(10)
    assert condensing(small, small.size, QUESTION).price == float("inf"), (
        "the summary would be longer than what it sums up"
    )
    assert first.computed > len(QUESTION)


def test_asking_pays_by_the_share_of_the_room_that_nobody_has_judged() -> None:
    budget = ContextBudget.of(1200, 200)
    window = gathered(300)
    assert asking_pays(window, window.size, budget)
    assert not asking_pays(window, window.size // 2, budget)
    assert not asking_pays(window.as_judged(), window.size, budget)
    later = window.as_judged().add(Turn("read", document=CallResult("D2", "b.txt", "t" * 250)))
    assert asking_pays(later, later.size, budget)


def test_past_the_hard_mark_one_document_alone_is_not_asked_for_as_it_may_be_needed() -> None:
    budget = ContextBudget.of(1200, 200)
    one, two = gathered(860), gathered(430, 430)
    assert one.size >= budget.hard_limit
    assert not asking_pays(one, one.size, budget)
    assert asking_pays(two, two.size, budget)
