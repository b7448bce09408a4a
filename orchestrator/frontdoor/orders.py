"""Recognize requests that only a tool could fulfil: to book, send, buy or call, or to look up what is not in any text.

Only a request that is such an order as a whole is one, and not a request for a text about it ("Write an email that…").
English, German, French and Spanish are read.
"""

import re
from typing import Final

from orchestrator.frontdoor.words import folded

MAX_ORDER: Final = 300
"""A request with more characters has more in it than an order of this kind."""

_POLITE = (
    r"\s*(?:(?:hi|hello|hey|hallo|bonjour|salut|hola)\b[\s,!.]*)?"
    r"(?:(?:please|kindly|bitte|por favor|s'il (?:te|vous) plait|stp|svp)[\s,]+)?"
    r"(?:(?:can|could|will|would) you(?: please)?|i (?:want|need|would like) you to|i'd like you to|go and|"
    r"(?:kannst|konntest|wurdest) du(?: mir| bitte)*|konnen sie(?: mir| bitte)*|(?:peux|pourrais)-tu|pouvez-vous|"
    r"(?:puedes|podrias|puede)(?: por favor)?)?[\s,]*"
    r"(?:please|bitte|mir|uns)?[\s,]*"
)
_TRIP = (
    r"(?:flights?|hotels?|rooms?|tables?|tickets?|taxi|cab|trains?|seats?|appointments?|car|trip|holiday|restaurant|"
    r"flug\w*|hotels?|hotelzimmer|zimmer|tisch|fahrkarten?|karten|tickets?|taxi|zug|bahn\w*|termin|mietwagen|"
    r"vols?|chambres?|hotel|billets?|train|rendez-vous|voiture|places?|"
    r"vuelos?|habitacion(?:es)?|mesas?|billetes?|entradas?|tren|cita|coche|boletos?)"
)
_MAIL = (
    r"(?:e-?mails?|mails?|messages?|sms|texts?|letters?|reminders?|invitations?|whatsapp|fax|nachricht(?:en)?|"
    r"einladung(?:en)?|brief|courriels?|lettre|invitations?|correos?|mensajes?|carta|invitacion(?:es)?)"
)
_PEOPLE = (
    r"(?:my|the|our|mom|mum|dad|grandma|a taxi|a cab|an ambulance|me|us|him|her|them)\b(?! \w*(?:function|method|"
    r"variable|file|column|class|section))"
)
_ORDERS: Final[dict[str, str]] = {
    "books or reserves": (
        rf"(?:book|reserve|buch\w*|reservier\w*|reserv(?:e|er|ez)|reserva(?:r|me)?)\b.{{0,60}}\b{_TRIP}\b"
        rf"|(?:eine?n?|zwei)\b.{{0,40}}\b{_TRIP}\b.{{0,40}}\b(?:buchen|reservieren)\b"
    ),
    "sends messages": (
        rf"(?:send|schick\w*|sende\w*|verschick\w*|envoie\w*|envoyer|envoyez|envia\w*|manda\w*)\b.{{0,80}}"
        rf"(?:\b{_MAIL}\b|\b(?:to|an|a|au|aux) \w+|@)|(?:e-?mail|text|message) (?:my|the|our|him|her|them|\w+@)\b"
    ),
    "makes calls": (
        rf"(?:phone|ring|call) (?:up )?{_PEOPLE}(?!.{{0,40}}\b(?:it|function|api)\b)"
        r"|ruf\w*\b.{1,40}\ban\b|telefonier\w* mit|(?:appelle|telephone|appelez)\b(?!-le\b).{0,20}\b(?:mon|ma|mes|le|la|un)\b"
        r"|llama(?:r)? (?:a|al)\b"
    ),
    "buys or pays": (
        r"(?:buy|purchase|kauf\w*|achete\w*|compra(?:r|me)?)\b"
        r"|order (?:me|us|a|an|some|two|three) (?:\w+ )?(?:pizzas?|taxi|cab|food|flowers?|book|dinner|lunch|groceries|sushi)\b"
        r"|bestell\w*\b.{0,30}\b(?:pizza|taxi|essen|blumen|buch)\b|(?:pay|transfer|uberweis\w*|bezahl\w*)\b.{0,30}"
        r"(?:\d|\b(?:bill|invoice|rent|rechnung|miete)\b)|commande(?:-moi|r)?\b.{0,20}\b(?:pizza|taxi|fleurs|livre)\b"
        r"|pide(?:me)?\b.{0,20}\b(?:pizza|taxi|comida)\b"
    ),
    "searches the web": (
        r"(?:look up|search for|find|check|research|get|tell me)\b.{0,100}\b(?:online|on the (?:web|internet|net)|on google|"
        r"on wikipedia)\b|(?:search|browse) (?:the )?(?:web|internet|google)\b|google (?!(?:sheets?|docs?|cloud|ads)\b)\w"
        r"|look up\b|(?:such\w*|schau\w*|finde|recherchier\w*|schlag\w*)\b.{0,100}\b(?:im (?:internet|web|netz)|online|"
        r"auf google)\b|googl?e\b.{0,10}\bnach\b|(?:cherche\w*|recherche\w*|trouve\w*)\b.{0,100}\b(?:sur (?:internet|le web|"
        r"google)|en ligne)\b|busca\w*\b.{0,100}\b(?:en (?:internet|la web|google|linea))\b"
    ),
    "reads web pages": (
        r"(?:summari[sz]e|read|open|visit|download|fetch|translate|check|scrape|crawl|go to|fasse?|lies|offne|lade|besuche|"
        r"ubersetz\w*|resume\w*|lis|ouvre|telecharge\w*|traduis|lee|abre|descarga|traduce)\b.{0,60}(?:https?://|www\.)\S"
    ),
    "knows the present": (
        r"(?:what(?:'s| is| will)|how(?:'s| is)|tell me|show me|get me|give me|is it|will it|check)\b.{0,30}\b(?:the "
        r"(?:current |latest |today's )?weather\b(?! (?:report|data|in (?:the|this) (?:story|text|poem)))|(?:the )?(?:latest|"
        r"current|today's|live) (?:news|headlines|(?:stock |share |bitcoin |gold |gas |oil )?prices?|exchange rate|score|"
        r"traffic|time\b|temperature))|what time is it\b|what day is (?:it|today)\b|what(?:'s| is) today's date"
        r"|will it rain\b|is it raining\b"
        r"|wie (?:ist|wird) (?:das|morgen das|heute das) wetter|wie spat ist es|welcher tag ist heute|regnet es"
        r"|was kostet .{1,40}\b(?:heute|gerade|aktuell)\b|wie (?:steht|ist) der (?:aktuelle )?\w*kurs"
        r"|quel temps (?:fait-il|fera-t-il)|quelle heure est-il|quelle est la meteo|quel jour sommes-nous"
        r"|que tiempo (?:hace|hara)|que hora es|que dia es hoy|cual es el (?:clima|precio actual|tipo de cambio)"
    ),
    "keeps calendars and reminders": (
        r"remind me\b|set (?:an? )?(?:alarm|timer|reminder)\b|add .{1,60} to my calendar|schedule (?:a|the) (?:meeting|call)\b"
        r"|erinner\w* mich\b|stell\w* .{0,20}\b(?:wecker|timer)\b|trag\w* .{1,60}\bkalender\b"
        r"|rappelle-moi\b|mets une alarme|recuerdame\b|pon(?:me)? (?:una )?(?:alarma|temporizador)"
    ),
    "controls devices": (
        r"(?:turn|switch) (?:on|off) the (?:lights?|heating|tv|television|radio|music)\b|play (?:some |the )?(?:music|song)\b"
        r"|(?:schalt\w*|mach\w*) das licht\b|spiel\w* (?:mir )?(?:musik|das lied)\b|allume\w* la lumiere|enciende la luz"
    ),
    "publishes": (
        r"(?:post|publish|tweet|upload)\b.{1,60}\b(?:on|to) (?:twitter|x|facebook|linkedin|instagram|reddit|github|youtube)\b"
        r"|tweet (?:this|that)\b|poste\w*\b.{1,60}\b(?:auf|sur) (?:twitter|facebook|linkedin|instagram)\b"
        r"|publica\w*\b.{1,60}\ben (?:twitter|facebook|linkedin|instagram)\b"
    ),
}
"""Patterns of orders, folded, by what a tool would have to do for them."""
_PATTERNS = {needed: re.compile(rf"{_POLITE}¿?(?:{order})") for needed, order in _ORDERS.items()}
_FROM_TEXTS = frozenset({"knows the present", "searches the web"})
"""What may as well be read in files that the request names."""
_BEGINS_AS_TEXT = re.compile(r"\s*[\"'“„«`]")


def needed_tool(request: str, names_files: bool) -> str:
    """Return a sentence about the tool that a request needs, if it is an order that only a tool can fulfil; else "".

    `names_files` says whether it names files that are there: what could be looked up may then stand in these.
    """
    order = folded(request).strip()
    if len(order) > MAX_ORDER or "```" in order or _BEGINS_AS_TEXT.match(order):
        return ""
    for needed, pattern in _PATTERNS.items():
        if pattern.match(order) and not (names_files and needed in _FROM_TEXTS):
            return (
                f"the request needs a tool that {needed}, and there is none "
                "(an MCP server under [mcp] in the configuration can bring one)"
            )
    return ""
