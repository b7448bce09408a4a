"""What an answer says of a row of its own table is doubted only if every reading of the table contradicts it."""

import pytest

from orchestrator.run.frontdoor.doubt import WrittenAnswer
from orchestrator.run.frontdoor.doubts import doubts

OFFERS = """\
| Offer | Price | Delivery |
|---|---|---|
| **Hart Office** | 289 euros each, 2,890 euros in all | 3 weeks |
| Moebelwerk | 2.450 euros | 2 months |
| Nordic Desk | 3,200 euros | 5 days |
"""
ANGEBOTE = """\
| Angebot | Preis (Euro) | Lieferzeit (Tage) |
|---|---|---|
| Hart | 1.200,50 | 10 bis 14 |
| Nordisk | 980 | 21 |
"""


def against(table: str, claim: str) -> list[str]:
    texts = {"s1.txt": f"Here is the table:\n\n{table}\n{claim}"}
    return [doubt.text for doubt in doubts("Compare the offers in a table.", (), WrittenAnswer(texts, texts, {}))]


@pytest.mark.parametrize(
    ("table", "claim", "doubt"),
    [
        (
            OFFERS,
            "The cheapest offer is Nordic Desk with a price of 3,200 euros. It is good.",
            "The answer calls Nordic Desk the cheapest; its own table has 2.450 euros for Moebelwerk.",
        ),
        (
            OFFERS,
            "Moebelwerk has the fastest delivery.",
            "The answer calls Moebelwerk the fastest; its own table has 5 days for Nordic Desk.",
        ),
        (
            OFFERS,
            "Moebelwerk is the most expensive one.",
            "The answer calls Moebelwerk the most expensive; its own table has 3,200 euros for Nordic Desk.",
        ),
        (
            ANGEBOTE,
            "Am günstigsten ist nichts. Hart ist das günstigste Angebot.",
            "The answer calls Hart the günstigste; its own table has 980 for Nordisk.",
        ),
        (
            ANGEBOTE,
            "Nordisk liefert am schnellsten.",
            "The answer calls Nordisk the schnellsten; its own table has 10 bis 14 for Hart.",
        ),
    ],
)
def test_a_claim_that_the_table_contradicts_is_doubted(table: str, claim: str, doubt: str) -> None:
    assert against(table, claim) == [doubt]


@pytest.mark.parametrize(
    ("table", "claim"),
    [
        (OFFERS, "Moebelwerk is the cheapest, at 2,450 euros."),
        (OFFERS, "Hart Office is the cheapest, at 289 euros each."),
        (OFFERS, "Nordic Desk is not the cheapest."),
        (OFFERS, "Nordic Desk is the second cheapest."),
        (OFFERS, "The cheapest is Moebelwerk, the fastest Nordic Desk."),
        (OFFERS, "Nordic Desk is the best."),
        (OFFERS.replace("5 days", "1 week and 2 days"), "Hart Office is the fastest."),
        (OFFERS.replace("| Price |", "| Wood |"), "Nordic Desk is the cheapest."),
        (OFFERS.replace("3,200 euros", "on request"), "Nordic Desk is the cheapest."),
        (OFFERS.replace("| 5 days |", "| 5 days | 1 |"), "Nordic Desk is the cheapest."),
    ],
)
def test_a_claim_that_may_be_true_is_not_doubted(table: str, claim: str) -> None:
    assert against(table, claim) == []
