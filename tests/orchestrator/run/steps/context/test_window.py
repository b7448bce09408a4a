from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.contract import Message
from orchestrator.run.steps.context.window import CallResult, Turn, Window

OPENING = (Message("system", "Do it."), Message("user", "Task: gather."))


def gathered(*names: str) -> Window:
    window = Window(OPENING)
    for name in names:
        document = CallResult(window.next_id, name, f"text of {name}")
        window = window.add(Turn(f"read {name}", document=document))
    return window


def test_the_conversation_alternates_and_begins_with_the_head() -> None:
    messages = gathered("a", "b").condense("{}").add(Turn("go", "gone")).messages
    assert messages[:2] == (Message("system", "Do it."), Message("user", "Task: gather."))
    assert [message.role for message in messages[1:]] == ["user", "assistant"] * 2 + ["user"]


@given(st.lists(st.text(max_size=20), max_size=5), st.text(max_size=20))
def test_a_new_turn_leaves_all_that_was_sent_as_it_was(told: list[str], new: str) -> None:
    window = Window(OPENING)
    for text in told:
        window = window.add(Turn("x", text))
    longer = window.add(Turn("y", new))
    assert longer.messages[: len(window.messages)] == window.messages


@given(st.data())
def test_sweeping_leaves_what_is_before_the_first_pruned_document(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6))
    window = gathered(*names)
    ids = data.draw(st.sets(st.sampled_from([one.id for one in window.gathered]), min_size=1))
    pruned = window.prune(ids)
    assert pruned.messages == window.messages
    assert {one.id for one in pruned.shown} == {one.id for one in pruned.kept}
    assert {one.id for one in pruned.shown} | ids == {one.id for one in window.gathered}
    swept = pruned.sweep()
    first = min(int(name[1:]) for name in ids) - 1
    same = len(OPENING) + 2 * first
    assert swept.messages[:same] == window.messages[:same]
    assert swept.shown == pruned.shown
    text = "\n".join(message.content for message in swept.messages)
    assert text.count("text of") == len(names) - len(ids)
    assert [message.role for message in swept.messages[2:]] == ["assistant", "user"] * (len(names) - len(ids))


def test_documents_are_fresh_until_they_are_judged() -> None:
    window = gathered("a", "b")
    assert [turn.wrote for turn in window.fresh] == ["read a", "read b"]
    pruned = window.prune(["D1"]).add(Turn("read c", document=CallResult("D3", "c", "text of c")))
    assert [turn.wrote for turn in pruned.fresh] == ["read c"]
    assert pruned.as_judged().fresh == ()
    assert pruned.condense("{}").fresh == ()


@given(st.lists(st.sampled_from("abc"), max_size=3), st.text(max_size=20))
def test_what_is_behind_a_condensation_leaves_its_messages_as_they_were(names: list[str], new: str) -> None:
    condensed = gathered(*names).condense("{}")
    later = condensed.add(Turn("go", document=CallResult(condensed.next_id, "new", new))).prune([condensed.next_id])
    assert later.messages[: len(condensed.messages)] == condensed.messages


def test_condensing_keeps_the_head_and_names_what_was_kept() -> None:
    window = gathered("a", "b", "c").prune(["D2"]).condense('{"findings":[]}')
    assert window.messages[:2] == Window(OPENING).messages
    assert window.messages[2] == Message("assistant", '{"findings":[]}')
    assert "D1 a, D3 c" in window.messages[3][1]
    assert "condensed once" in window.messages[3][1]
    assert window.shown == ()
    assert [one.id for one in window.kept] == ["D1", "D3"]
    assert window.add(Turn("x", document=CallResult(window.next_id, "d", ""))).shown[0].id == "D4"
    assert "condensed 2 times" in window.condense("{}").messages[3][1]
