"""Recognize requests that only a tool could fulfil: to book, send, buy or call, or to look up what is in no text here.

The whole request has to be such an order; a request for a text about it ("Write an email that…") is not. English,
German, French and Spanish are read. In doubt it is no order: to refuse what a model could do is worse than an answer
that says that it cannot be done.
"""

import re
from typing import Final

from orchestrator.run.frontdoor.words import folded

MAX_ORDER: Final = 300  # characters; a longer request is more than such an order

_POLITE = (
    r"\s*(?:(?:hi|hello|hey|hallo|bonjour|salut|hola)\b[\s,!.]*)?"
    r"(?:(?:please|kindly|bitte|por favor|s'il (?:te|vous) plait|stp|svp)[\s,]+)?"
    r"(?:(?:can|could|will|would) you(?: please)?|i (?:want|need|would like) you to|i'd like you to|go and|"
    r"(?:kannst|konntest|wurdest) du(?: mir| bitte)*|konnen sie(?: mir| bitte)*|(?:peux|pourrais)-tu|pouvez-vous|"
    r"(?:puedes|podrias|puede)(?: por favor)?)?[\s,]*"
    r"(?:please|bitte|mir|uns)?[\s,¿]*"
)
_TRIP = (
    r"(?:flights?|hotels?|rooms?|tables?|tickets?|taxi|cab|trains?|seats?|appointments?|car|trip|holiday|restaurant"
    r"|flug\w*|hotelzimmer|zimmer|tisch|fahrkarten?|karten|zug|termin|mietwagen"
    r"|vols?|chambres?|billets?|train|rendez-vous|voiture|places?"
    r"|vuelos?|habitacion(?:es)?|mesas?|billetes?|entradas?|tren|cita|coche|boletos?)"
)
_MAIL = (
    r"(?:e-?mails?|mails?|messages?|sms|letters?|reminders?|invitations?|whatsapp|fax"
    r"|nachricht(?:en)?|einladung(?:en)?|brief|courriels?|lettre|correos?|mensajes?|carta|invitacion(?:es)?)"
)
_PERSON = (
    r"(?:mum|mom|mother|dad|father|brother|sister|wife|husband|boss|doctor|dentist|bank|police|school|hotel|restaurant"
    r"|landlord|neighbou?r|friend|plumber|garage|insurance|colleague|customer|client)"
)
_WEB = r"(?:on the (?:web|internet|net)|on (?:google|wikipedia)|online(?=[.?!]*$))"
_NETZ = r"(?:im (?:internet|web|netz)|auf google|online(?=[.?!]*$))"
_SOCIAL = r"(?:twitter|x|facebook|linkedin|instagram|reddit|youtube)\b"
_READ = (
    r"(?:summari[sz]e|read|open|visit|download|fetch|translate|check|scrape|crawl|go to|fasse?|lies|offne|lade|besuche"
    r"|ubersetz\w*|resume\w*|lis|ouvre|telecharge\w*|traduis|lee|abre|descarga|traduce)"
)
_NOW = r"(?:the )?(?:latest|current|today's|live)"
_ASK = r"(?:what(?:'s| is| will)|how(?:'s| is)|tell me|show me|get me|give me|check)"

# folded patterns of orders, by what a tool would have to do for them
_ORDERS: Final[dict[str, tuple[str, ...]]] = {
    "books or reserves": (
        rf"(?:book|reserve) (?:me|us|an?|the|my|our|two|three|four|\d+)\b.{{0,60}}\b{_TRIP}\b",
        rf"(?:buche?|buchen|reserviere?|reservieren|reserve[rz]?|reserva(?:r|me)?)\b.{{0,60}}\b{_TRIP}\b",
        rf"(?:eine?n?|zwei)\b.{{0,40}}\b{_TRIP}\b.{{0,40}}\b(?:buchen|reservieren)\b",
    ),
    "sends messages": (
        rf"send\b.{{0,80}}\b{_MAIL}\b",
        r"send (?!(?:me|us)\b).{1,60}\bto \w+",
        r"(?:e-?mail|text|message) (?:my|our|him|her|them|\w+@)",
        rf"(?:schicke?|sende|verschicke?|envoie|envoye[rz]|envia(?:r|le)?|manda(?:r|le)?)\b.{{0,80}}\b(?:{_MAIL}|a[nu]?)\b",
        rf"(?:eine?n?)\b.{{0,20}}\b{_MAIL}\b.{{0,40}}\b(?:schicken|senden|verschicken)\b",
    ),
    "makes calls": (
        rf"(?:phone|ring|call) (?:up )?(?:(?:my|the|our) )?{_PERSON}\b",
        r"call (?:me|us) (?:back|at|in|on)\b",
        r"call (?:a (?:taxi|cab)|an ambulance)\b",
        r"rufe?\b.{1,40}\ban\b",
        r"telefoniere? mit\b",
        r"(?:appelle|telephone)[rz]? (?:a )?(?:mon|ma|mes|un taxi)\b",
        r"llama(?:r)? (?:a mi|al (?:medico|dentista|banco|restaurante))\b",
    ),
    "buys or pays": (
        r"(?:buy|purchase) (?!or\b|and sell|vs|low\b)\w",
        r"order (?:me|us|an?|some|two|three) (?:\w+ )?(?:pizzas?|taxi|cab|food|flowers?|dinner|lunch|groceries)\b",
        r"(?:pay|transfer)\b.{0,30}(?:[$€£]|\b(?:euros?|dollars?|pounds?|(?:my|the) (?:bill|rent|invoice))\b)",
        r"(?:kaufe?|kaufen) (?!oder\b)\w",
        r"bestelle?\b.{0,30}\b(?:pizza|taxi|essen|blumen|buch)\b",
        r"(?:uberweise?|bezahle?)\b.{0,30}(?:€|\b(?:euro|rechnung|miete)\b)",
        r"achete[rz]? (?!ou\b)\w",
        r"commande(?:-moi|r|z)?\b.{0,20}\b(?:pizza|taxi|fleurs|livre)\b",
        r"compra(?:r|me)? (?!o\b|y venta)\w",
        r"pide(?:me)?\b.{0,20}\b(?:pizza|taxi|comida)\b",
    ),
    "searches the web": (
        rf"(?:look up|search for|find|check|research|get|tell me)\b.{{0,100}}\b{_WEB}",
        r"(?:search|browse) (?:the )?(?:web|internet|google)\b",
        r"google (?:for|the|how|what|who|whether|it|this|that)\b",
        r"look up\b",
        rf"(?:suche?|schaue?|finde|recherchiere?|schlage?)\b.{{0,100}}\b{_NETZ}",
        r"googl?e\b.{0,10}\bnach\b",
        r"(?:cherche|recherche|trouve)[rz]?\b.{0,100}\b(?:sur (?:internet|le web|google)|en ligne(?=[.?! ]*$))",
        r"busca(?:r|me)?\b.{0,100}\b(?:en (?:internet|la web|google|linea))\b",
    ),
    "reads web pages": (rf"{_READ}\b.{{0,60}}(?:https?://|www\.)\S",),
    "knows the present": (
        rf"{_ASK} .{{0,15}}\bthe (?:current |latest |today's )?weather\b"
        r"(?! (?:report|data|like in (?:the|this) (?:story|text|poem)))",
        rf"{_ASK} .{{0,30}}\b{_NOW} (?:news|headlines|(?:\w+ )?prices?|exchange rate|score|traffic|temperature)\b",
        rf"{_ASK} .{{0,15}}\b{_NOW} time(?: in \w+)?[.?!]*$",
        r"what time is it(?: now| in \w+)?[.?!]*$",
        r"what day is (?:it|today)\b",
        r"what(?:'s| is) today's date\b",
        r"(?:will it rain|is it raining)\b",
        r"wie (?:ist|wird) (?:morgen |heute )?das wetter\b",
        r"wie spat ist es\b",
        r"welcher tag ist heute\b",
        r"regnet es\b",
        r"was kostet .{1,40}\b(?:heute|gerade|aktuell)\b",
        r"wie (?:steht|ist) der (?:aktuelle )?\w*kurs\b",
        r"quel temps (?:fait-il|fera-t-il)\b",
        r"quelle heure est-il\b",
        r"quelle est la meteo\b",
        r"quel jour sommes-nous\b",
        r"que tiempo (?:hace|hara)\b",
        r"que hora es\b",
        r"que dia es hoy\b",
        r"cual es el (?:clima|precio actual|tipo de cambio)\b",
    ),
    "keeps calendars and reminders": (
        r"remind me (?:to|at|in|on|tomorrow|every|about)\b",
        r"set (?:an? )?(?:alarm|timer|reminder)\b",
        r"add .{1,60} to my calendar\b",
        r"schedule (?:a|the) (?:meeting|call)\b",
        r"erinnere? mich (?:an|morgen|heute|um|am)\b",
        r"stelle? .{0,20}\b(?:wecker|timer)\b",
        r"trage? .{1,60}\bkalender\b",
        r"rappelle-moi (?:de|d'|demain)",
        r"mets une alarme\b",
        r"recuerdame (?!que (?:es|son|era))\w",
        r"pon(?:me)? (?:una )?(?:alarma|temporizador)\b",
    ),
    "controls devices": (
        r"(?:turn|switch) (?:on|off) the (?:lights?|heating|tv|television|radio|music)\b",
        r"play (?:some |the )?(?:music|song)\b",
        r"(?:schalte?|mache?) das licht\b",
        r"spiele? (?:mir )?(?:musik|das lied)\b",
        r"(?:allume|eteins|enciende|apaga) (?:la lumiere|la luz)\b",
    ),
    "publishes": (
        rf"(?:post|publish|upload)\b.{{1,60}}\b(?:on|to) {_SOCIAL}",
        r"tweet (?:this|that)\b",
        rf"poste\b.{{1,60}}\b(?:auf|sur) {_SOCIAL}",
        rf"publica\b.{{1,60}}\ben {_SOCIAL}",
    ),
}
_PATTERNS = {needed: re.compile(rf"{_POLITE}(?:{'|'.join(orders)})") for needed, orders in _ORDERS.items()}
# may also be in files that the request names, or in a text that follows
_FROM_TEXTS = frozenset({"knows the present", "searches the web"})
_TEXT_FOLLOWS = re.compile(r":|\n")
# a quoted text, or a request about a program
_NO_ORDER = re.compile(
    r"\s*[\"'“„«`]|.*(?:```|\b(?:functions?|scripts?|code|python|javascript|html|css|regex|class|funktion|skript|fonction"
    r"|funcion)\b)",
    re.DOTALL,
)


def needed_tool(request: str, names_files: bool) -> str:
    """Return a sentence about the tool that a request needs, if only a tool can fulfil it; else "".

    `names_files`: the request names existing files, in which the answer to a look-up may be.
    """
    order = folded(request).strip()
    if len(order) > MAX_ORDER or _NO_ORDER.match(order):
        return ""
    has_text = names_files or _TEXT_FOLLOWS.search(order) is not None
    for needed, pattern in _PATTERNS.items():
        if pattern.match(order) and not (has_text and needed in _FROM_TEXTS):
            return (
                f"the request needs a tool that {needed}, and there is none "
                "(an MCP server can bring one: [mcp.servers.NAME] in the configuration)"
            )
    return ""
