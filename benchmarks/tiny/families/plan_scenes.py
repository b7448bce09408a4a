"""Write the scenes that requests are made of.

A scene is one kind of work. Its function adds the parts of that work to a draft of a plan, and returns the clause of
the request that asks for it.
"""

from benchmarks.tiny.families import plan_phrases as phrases
from benchmarks.tiny.families import plan_wordings as wordings
from benchmarks.tiny.families.plan_draft import Draft
from orchestrator.bench.families import texts
from orchestrator.bench.families.code import specify
from orchestrator.bench.families.shell import make_command
from orchestrator.bench.families.words import listing
from orchestrator.task.taskir.json_text import compact_json

FAN_OUTS = (1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8)


def some_keys(draft: Draft) -> str:
    """Return one to three random keys as an enumeration."""
    keys = draft.rng.sample(("name", *texts.NUMERIC, *texts.TEXTUAL), draft.rng.randint(1, 3))
    return listing(keys)


def work(draft: Draft, called: tuple[str, ...], reference: str) -> tuple[str, str, str]:
    """Add a part that does the same with each of `called`.

    Return the clause, a noun for the outputs, and the name by which other parts read them.
    """
    if draft.rng.random() < 0.68:
        made = draft.add("worker", "Summarize {each}.", each=called)
        return draft.word_as(wordings.SUMMARIZE).format(x=reference), "summaries", made
    if draft.rng.random() < 0.75:
        keys = some_keys(draft)
        made = draft.add("worker", f"Extract {keys} from {{each}}.", each=called)
        return draft.word_as(wordings.EXTRACT).format(k=keys, x=reference), "records", made
    key = draft.rng.choice(("name", "record", *texts.NUMERIC, *texts.TEXTUAL))
    made = draft.add("worker", f"List each {key} in {{each}}.", each=called)
    return draft.word_as(wordings.LIST).format(k=key, x=reference), "lists", made


def join(draft: Draft, noun: str, *outputs: str) -> str:
    """Add a part that compares or merges `outputs`, and return its clause of the request."""
    spoken_noun = noun if draft.rng.random() < 0.7 else "results"
    if noun != "lists" and draft.rng.random() < 0.6:
        by = f" by {draft.rng.choice(texts.NUMERIC)}" if draft.rng.random() < 0.2 else ""
        draft.add("worker", f"Compare the {noun}{by}.", inputs=outputs)
        return draft.word_as(wordings.COMPARE).format(w=spoken_noun, by=by)
    draft.add("worker", f"Merge the {noun}.", inputs=outputs)
    return draft.word_as(wordings.MERGE).format(w=spoken_noun)


def output(draft: Draft, share: float = 0.2) -> str:
    """In a `share` of the requests, name the output of the last part. Return the clause that asks for it, or ''."""
    if draft.rng.random() >= share:
        return ""
    name = f"{draft.words.stem()}.{draft.rng.choice(('md', 'txt', 'json', 'md'))}"
    if draft.rng.random() < 0.3:
        name = draft.rng.choice(("report.md", "summary.md", "result.txt", "result.json", "comparison.md"))
    draft.change_last(output=name)
    return draft.word_as(phrases.OUTPUT).format(o=name)


def fan(draft: Draft, count: int = 0) -> str:
    """Add the same work on `count` files (0: one to eight), usually followed by a join. Return the clause."""
    files = draft.take(count or draft.rng.choice(FAN_OUTS))
    clause, noun, made = work(draft, draft.called(files), draft.refer(files))
    if len(files) > 1:
        if not count and draft.rng.random() < 0.2:
            return clause
        clause += join(draft, noun, made)
    return clause + output(draft)


def everything(draft: Draft) -> str:
    """Add the same work on all files, or on all files with one extension. Return the clause."""
    kind = draft.rng.choice(("txt", "md", "csv", "json", "log"))
    files = [f"{draft.words.stem()}.{kind}" for _ in range(draft.rng.randint(2, 6))]
    pattern, reference = "*", draft.word_as(phrases.ALL_FILES)
    if draft.rng.random() < 0.6:
        other = draft.rng.choice([e for e in ("txt", "md", "csv", "json", "log") if e != kind])
        files += [f"{draft.words.stem()}.{other}" for _ in range(draft.rng.randint(1, 3))]
        pattern, reference = f"*.{kind}", draft.word_as(phrases.ALL_OF_KIND).format(e=kind)
    draft.files += sorted(files)
    draft.complete = True
    clause, noun, made = work(draft, (pattern,), reference)
    return clause + join(draft, noun, made) + output(draft)


def mixed(draft: Draft) -> str:
    """Add different work on different files, then a join of all results. Return the clause."""
    first, second = draft.take(draft.rng.randint(1, 3)), draft.take(draft.rng.randint(1, 3))
    clause, _, made = work(draft, draft.called(first), draft.refer(first))
    other, _, more = work(draft, draft.called(second), draft.refer(second))
    return f"{clause}, {other}" + join(draft, "results", made, more) + output(draft)


def foreach(draft: Draft) -> str:
    """Add a part that makes a list, and a `foreach` part that works on each of its items. Return the clause."""
    file = draft.take(1)
    called, key = draft.called(file), draft.rng.choice(("name", "record"))
    items = draft.add("worker", f"List each {key} in {{each}}.", each=called)
    clause = draft.word_as(wordings.LIST).format(k=key, x=draft.refer(file))
    # The item is a name, which has to be looked up in the file, or a record, which has all that is needed.
    inputs = called if key == "name" else ()
    if draft.rng.random() < 0.5:
        made = draft.add("worker", "Summarize the item.", inputs=inputs, foreach=items)
        clause, noun = clause + draft.word_as(wordings.EACH_SUMMARY), "summaries"
    else:
        keys = some_keys(draft)
        made = draft.add("worker", f"Extract {keys} from the item.", inputs=inputs, foreach=items)
        clause, noun = clause + draft.word_as(wordings.EACH_EXTRACT).format(k=keys), "records"
    if draft.rng.random() < 0.4:
        clause += join(draft, noun, made)
    return clause + output(draft)


def follow(draft: Draft) -> str:
    """Add a part that lists the files that a file names, after which the plan is continued. Return the clause.

    The work on those files can only be planned when that list is known. Most examples ask for that rest of the plan,
    the others for the first part.
    """
    file = draft.take(1)
    draft.add("worker", "List each file in {each}.", each=draft.called(file), replan=True)
    files = draft.take(draft.rng.choice((1, 2, 2, 3, 4)))
    rest = len(draft.parts)
    clause, noun, made = work(draft, tuple(files), draft.word_as(phrases.NAMED_FILES).format(x=draft.refer(file)))
    if draft.rng.random() < 0.6:
        clause += join(draft, noun, made)
    if draft.rng.random() < 0.6:
        draft.finish_first(compact_json(files))
    else:
        del draft.parts[rest:]
    return clause


def code(draft: Draft) -> str:
    """Add a part that writes a function, specified in the request or in a file. Return the clause."""
    if draft.rng.random() < 0.2:
        file = draft.take(1)
        draft.add("coder", "Write the function described in {each}.", each=draft.called(file))
        return draft.word_as(phrases.SPECIFIED).format(x=draft.refer(file)) + output(draft, 0.1)
    clause = _function(draft)
    if draft.rng.random() < 0.25:
        name = f"{draft.words.stem()}.py"
        draft.change_last(output=name)
        clause += draft.word_as(phrases.OUTPUT).format(o=name)
    return clause


def _function(draft: Draft) -> str:
    """Add a part that writes a function, and return its clause."""
    spec, _, _ = specify(draft.words, "train")
    phrase = spec.fill(draft.rng.choice(spec.operation.phrases))
    draft.add("coder", f"Write a function {spec.signature} that returns {phrase}.")
    return draft.word_as(phrases.FUNCTION).format(s=spec.signature, p=phrase)


def code_then_run(draft: Draft) -> str:
    """Add a function that is saved to a file, and a command that runs it: it waits for the file, but reads nothing."""
    clause = _function(draft)
    name = f"{draft.words.stem()}.py"
    draft.change_last(output=name)
    clause += draft.word_as(phrases.OUTPUT).format(o=name)
    draft.add("coder", f"Write a shell command that runs {name}.", after=(f"P{len(draft.parts)}",))
    return clause + draft.word_as(phrases.AFTERWARDS) + draft.word_as(phrases.COMMAND).format(p=f"runs {name}")


def shell(draft: Draft) -> str:
    """Add a part that writes a shell command. Return the clause."""
    _, phrase = make_command(draft.words)
    draft.add("coder", f"Write a shell command that {phrase}.")
    return draft.word_as(phrases.COMMAND).format(p=phrase)


def inline_text(draft: Draft) -> str:
    """Add work on a text that is in the request itself. Return the clause."""
    record = texts.make_record(draft.words, texts.make_keys(draft.rng))
    text = texts.source_text(draft.words, record, draft.rng.choice((0, 0, 1, 2))).rstrip(".")
    if draft.rng.random() < 0.5:
        draft.add("worker", "Summarize the text.", inputs=("request",))
        verb = draft.rng.choice(("summarize", "sum up"))
    else:
        keys = some_keys(draft)
        draft.add("worker", f"Extract {keys} from the text.", inputs=("request",))
        verb = draft.rng.choice((f"extract {keys} from", f"get {keys} from"))
    return draft.word_as(phrases.INLINE).format(v=verb, t=text)


def chain(draft: Draft) -> str:
    """Add a summary of each of one to three files, and an extraction from each summary. Return the clause."""
    files = draft.take(draft.rng.choice((1, 1, 2, 3)))
    summaries = draft.add("worker", "Summarize {each}.", each=draft.called(files))
    keys = some_keys(draft)
    draft.add("worker", f"Extract {keys} from {{each}}.", each=(summaries,))
    clause = draft.word_as(wordings.SUMMARIZE).format(x=draft.refer(files))
    if len(files) > 1:
        return clause + draft.word_as(phrases.CHAIN_EACH).format(k=keys)
    return clause + draft.word_as(phrases.CHAIN).format(k=keys) + output(draft)


def diamond(draft: Draft) -> str:
    """Add a summary, two extractions from it, and a merge of these. Return the clause."""
    file = draft.take(1)
    summary = draft.add("worker", "Summarize {each}.", each=draft.called(file))
    first, second = draft.rng.sample(("name", *texts.NUMERIC, *texts.TEXTUAL), 2)
    made = [draft.add("worker", f"Extract {key} from {{each}}.", each=(summary,)) for key in (first, second)]
    draft.add("worker", "Merge the results.", inputs=tuple(made))
    clause = draft.word_as(wordings.SUMMARIZE).format(x=draft.refer(file))
    return clause + draft.word_as(phrases.DIAMOND).format(k=first, l=second) + output(draft)


def judged(draft: Draft) -> str:
    """Add a summary or an extraction, and a judge who compares it with its source. Return the clause."""
    file = draft.take(1)
    called = draft.called(file)
    if draft.rng.random() < 0.7:
        clause = draft.word_as(wordings.SUMMARIZE).format(x=draft.refer(file))
        made, noun = draft.add("worker", "Summarize {each}.", each=called), "summary"
    else:
        keys = some_keys(draft)
        clause = draft.word_as(wordings.EXTRACT).format(k=keys, x=draft.refer(file))
        made, noun = draft.add("worker", f"Extract {keys} from {{each}}.", each=called), "record"
    draft.add("judge", f"Judge the {noun}.", inputs=(*called, made))
    return clause + draft.word_as(wordings.JUDGE).format(w=noun)
