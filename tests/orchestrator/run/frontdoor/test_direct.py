"""The step that answers a request directly, and when it is chosen without a plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.registry.load import find_registry, load_registry
from orchestrator.registry.models import LEAST_PLAN_QUALITY, Registry
from orchestrator.run.frontdoor.direct import direct_answer, fits, mentioned, why_direct
from orchestrator.task.taskir.models import Step

FILES = ("a.txt", "b.md", "docs/guide.md", "main.py", "summary.txt")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_registry(find_registry(None))


def step_for(registry: Registry, request: str, files: tuple[str, ...] = FILES) -> Step:
    return direct_answer(request, files, dict.fromkeys(files, 100), registry).step()


@pytest.mark.parametrize(
    ("request_text", "files"),
    [
        ("Summarize b.md and a.txt", ("a.txt", "b.md")),
        ("Write a summary of a.txt", ("a.txt",)),
        ("Read the guide", ("docs/guide.md",)),
        ("Explain guide.md", ("docs/guide.md",)),
        ("Explain docs/guide.md, please", ("docs/guide.md",)),
        ("Join *.txt", ("a.txt", "summary.txt")),
        ("Say hello", ()),
    ],
)
def test_files_are_mentioned_by_name_or_pattern_and_else_by_stem(request_text: str, files: tuple[str, ...]) -> None:
    assert mentioned(request_text, FILES) == files


SERIES = ("policy.txt", *(f"claim{number}.txt" for number in range(1, 7)))


@pytest.mark.parametrize(
    ("request_text", "files"),
    [
        ("Check claim1 to claim6 against policy.txt", SERIES),
        ("Check claim2 against policy.txt", ("policy.txt", "claim2.txt")),
        ("Sum up claim2.txt-claim4.txt", SERIES[2:5]),
        ("Sum up claims 2 to 4", SERIES[2:5]),
        ("Fasse claim2 bis claim4 zusammen", SERIES[2:5]),
        ("Résume claim2 à claim4", SERIES[2:5]),
        ("Resume de claim2 a claim4", SERIES[2:5]),
        ("Sum up claim2\u2013claim4", SERIES[2:5]),
        ("What has changed from claim2 to claim4?", ("claim2.txt", "claim4.txt")),
        ("Sum up claim1.txt to claim3.txt without claim2.txt", ("claim1.txt", "claim3.txt")),
        ("Sum up claim1.txt, ignore claim2.txt", ("claim1.txt",)),
        ("What is the policy?", ("policy.txt",)),
    ],
)
def test_a_range_mentions_all_files_from_the_first_to_the_last(request_text: str, files: tuple[str, ...]) -> None:
    assert mentioned(request_text, SERIES) == files


def test_the_step_does_the_whole_request_with_the_files_in_the_order_of_the_folder(registry: Registry) -> None:
    request = "Compare b.md with a.txt"
    expected = Step(id="S1", actor="worker", action=request, inputs=("a.txt", "b.md"), outputs=("s1.txt",))
    assert step_for(registry, request) == expected


def test_a_generalist_answers_whole_requests_and_a_coder_those_for_code(registry: Registry) -> None:
    generalist = replace(registry.roles["worker"], in_plans=False, model="tiny-medium")
    with_generalist = replace(registry, roles={**registry.roles, "generalist": generalist})
    answer = direct_answer("Compare b.md with a.txt", FILES, dict.fromkeys(FILES, 100), with_generalist)
    assert (answer.role, answer.model) == ("generalist", "tiny-medium")
    assert step_for(with_generalist, "Fix main.py").actor == "coder"


def test_a_request_that_mentions_no_file_is_about_all_if_they_are_few_and_small(registry: Registry) -> None:
    assert step_for(registry, "Say hello").inputs == FILES
    many = tuple(f"f{number}.txt" for number in range(11))
    assert step_for(registry, "Say hello", many).inputs == ()
    notes = tuple(f"note{number}.txt" for number in range(11))
    assert step_for(registry, "Which of my notes mention the boiler?", notes).inputs == notes
    assert step_for(registry, "Which of these files mention the boiler?", many).inputs == many
    assert step_for(registry, "Say hello", ()).inputs == ()
    context = registry.models["tiny-large"].context
    large = direct_answer("Say hello", ("x.txt",), {"x.txt": 3 * context}, registry)
    assert large.inputs == ()
    unknown = direct_answer("Say hello", ("x.txt",), {}, registry)
    assert unknown.inputs == (), "its size is unknown"


def test_a_kind_of_files_is_read_next_to_those_that_are_named(registry: Registry) -> None:
    files = ("hints.txt", "mail_a.txt", "mail_b.txt", "offer_a.txt", "offer_b.txt")
    request = "Beantworte jede der Mails. Was du wissen musst, steht in hints.txt."
    assert step_for(registry, request, files).inputs == files[:3]
    assert step_for(registry, "Answer mail_a.txt in a short mail. Use hints.txt.", files).inputs == files[:2]


# request, files, what a direct answer reads
READ = [
    ("What is the deadline?", "brief.txt budget.csv", "brief.txt budget.csv"),
    ("Summarise the brief.", "brief.txt budget.csv", "brief.txt"),
    ("How much did we spend on travel? See budget.", "brief.txt budget.csv", "budget.csv"),
    ("Compare Anna's and Ben's letters.", "anna.txt ben.txt carla.txt", "anna.txt ben.txt"),
    (
        "Read all letters and tell me who is angry.",
        "letter_anna.txt letter_ben.txt invoice.txt",
        "letter_anna.txt letter_ben.txt",
    ),
    ("Translate the poem into German.", "poem.txt README.md", "poem.txt"),
    ("Which invoice is the highest?", "invoice_jan.txt invoice_feb.txt letter.txt", "invoice_jan.txt invoice_feb.txt"),
    (
        "Which of the invoices is not paid yet?",
        "invoice_jan.txt invoice_feb.txt letter.txt",
        "invoice_jan.txt invoice_feb.txt",
    ),
    ("Explain main.py", "main.py util.py", "main.py"),
    ("Why does main.py fail? The error is in error.log", "main.py util.py error.log", "main.py error.log"),
    ("The tests fail, fix the module.", "calc.py test_calc.py", "calc.py test_calc.py"),
    (
        "Is there a contradiction between contract.md and the annex?",
        "contract.md annex.md mail.txt",
        "contract.md annex.md",
    ),
    ("Welche Termine stehen im Protokoll?", "protokoll.txt liste.txt", "protokoll.txt"),
    ("Fasse die beiden Berichte zusammen.", "bericht_a.txt bericht_b.txt notiz.txt", "bericht_a.txt bericht_b.txt"),
    ("Vergleiche Angebot A mit Angebot B.", "angebot_a.txt angebot_b.txt mail.txt", "angebot_a.txt angebot_b.txt"),
    ("Résume le contrat.", "contrat.txt facture.txt", "contrat.txt"),
    ("Traduce la carta al inglés.", "carta.txt factura.txt", "carta.txt"),
    ("Use style.md as a guide and rewrite intro.md.", "style.md intro.md other.md", "style.md intro.md"),
    (
        "Rewrite chapter1.md and chapter3.md, leave chapter2.md alone.",
        "chapter1.md chapter2.md chapter3.md",
        "chapter1.md chapter3.md",
    ),
    ("Answer the mail from Mr Keller.", "mail_keller.txt mail_wolff.txt", "mail_keller.txt"),
    (
        "Draft a reply to Wolff. Facts are in facts.txt",
        "mail_keller.txt mail_wolff.txt facts.txt",
        "mail_wolff.txt facts.txt",
    ),
    (
        "What do the reviews say about breakfast?",
        "review1.txt review2.txt review3.txt menu.txt",
        "review1.txt review2.txt review3.txt",
    ),
    ("List all the people mentioned in these files.", "a.txt b.txt", "a.txt b.txt"),
    (
        "Boil the two interviews down to a line each.",
        "interview_anna.txt interview_ben.txt menu.txt",
        "interview_anna.txt interview_ben.txt",
    ),
    ("Fass die drei Mails zusammen.", "mail1.txt mail2.txt mail3.txt plan.txt", "mail1.txt mail2.txt mail3.txt"),
    ("Tell me about two cats.", "cat_a.txt cat_b.txt dog.txt", "cat_a.txt cat_b.txt dog.txt"),
    (
        "Give me a shopping list for the recipes.",
        "recipe_soup.txt recipe_cake.txt diary.txt",
        "recipe_soup.txt recipe_cake.txt",
    ),
    ("Write unit tests for the parser.", "parser.py lexer.py", "parser.py"),
]


@pytest.mark.parametrize(("request_text", "files", "read"), READ)
def test_files_are_mentioned_by_a_part_of_their_names_or_by_their_kind(
    registry: Registry, request_text: str, files: str, read: str
) -> None:
    assert step_for(registry, request_text, tuple(files.split())).inputs == tuple(read.split())


def test_a_text_that_is_to_be_written_is_no_kind_of_files(registry: Registry) -> None:
    files = ("letter_old.txt", "letter_new.txt", "facts.txt")
    assert step_for(registry, "Write a letter to the landlord.", files).inputs == files


def test_files_that_the_request_names_and_that_do_not_exist_are_its_outputs(registry: Registry) -> None:
    step = step_for(registry, "Write slugify.py and README.de.md for main.py")
    assert step.outputs == ("slugify.py", "README.de.md")
    assert step.inputs == ("main.py",)


def test_code_goes_to_the_coder_and_through_the_gates_of_its_language(registry: Registry) -> None:
    step = step_for(registry, "Write slugify.py", ())
    assert step.actor == "coder"
    assert step.gates is not None
    assert "lint" in step.gates
    unnamed = step_for(registry, "Write a Python function that reverses a list", ())
    assert (unnamed.actor, unnamed.outputs) == ("coder", ("s1.txt",))
    assert not unnamed.gates, "what it is called is not known, nor its language"
    assert step_for(registry, "Explain what a Python function is", ()).actor == "worker"


def test_a_program_that_is_to_be_changed_is_written_under_its_name_and_tested(registry: Registry) -> None:
    files = ("main.py", "test_main.py")
    step = step_for(registry, "The tests in test_main.py fail. Fix main.py.", files)
    assert (step.actor, step.inputs, step.outputs) == ("coder", files, ("main.py",))
    assert step.gates == ("format", "lint", "build", "smoke", "unit")
    alone = step_for(registry, "Fix main.py.", files)
    assert (alone.inputs, alone.gates) == (("main.py",), ("format", "lint", "build", "smoke")), "nobody spoke of tests"


def test_a_file_that_the_request_calls_a_list_is_written_as_one(registry: Registry) -> None:
    request = "Make people.json from a.txt: a list with an object per person."
    assert step_for(registry, request).output_schema == {"type": "array", "minItems": 1}
    several = "Make people.json from a.txt, b.txt and c.txt: a list of objects with name and age."
    assert step_for(registry, several).output_schema == {"type": "array", "minItems": 1}
    assert step_for(registry, "Make people.json from a.txt: an object with a name.").output_schema is None


def test_it_takes_no_name_that_another_step_has(registry: Registry) -> None:
    answer = direct_answer("Write report.md and s2.txt", (), {}, registry)
    (step,) = answer.part([Step(id="S1", actor="worker", action="look", outputs=("report.md", "s2.txt"))]).steps
    assert step.id == "S2"
    assert step.outputs == ("s2-output.txt",)


def test_what_it_reads_has_to_leave_half_of_the_context(registry: Registry) -> None:
    context = registry.models["tiny-large"].context
    answer = direct_answer("Summarize a.txt", ("a.txt",), {"a.txt": 10}, registry)
    assert fits(answer, {"a.txt": 10}, registry)
    assert not fits(answer, {"a.txt": 3 * context}, registry)
    assert not fits(answer, {}, registry)


@pytest.mark.parametrize(
    ("request_text", "quality", "reason"),
    [
        ("Summarize a.txt", 1.0, "the request has nothing to split"),
        ("Summarize a.txt and b.md", 1.0, ""),
        ("Summarize a.txt and b.md", LEAST_PLAN_QUALITY, ""),
        ("Summarize a.txt and b.md", 0.22, "only 22% of the frontdoor's plans are right, and 90% are needed"),
        ("Summarize a.txt and b.md", None, "the plans of the frontdoor's model have not been measured"),
    ],
)
def test_why_no_plan_is_asked_for(registry: Registry, request_text: str, quality: float | None, reason: str) -> None:
    assert why_direct(direct_answer(request_text, FILES, {}, registry), quality) == reason


def test_a_registry_without_workers_has_another_role_answer(registry: Registry, tmp_path: Path) -> None:
    coder = replace(registry, roles={"coder": registry.roles["coder"]}, path=tmp_path)
    assert direct_answer("Say hello", (), {}, coder).role == "coder"


def test_the_shipped_frontdoors_were_measured(registry: Registry) -> None:
    assert (registry.roles["frontdoor"].plan_quality or 0) >= LEAST_PLAN_QUALITY
