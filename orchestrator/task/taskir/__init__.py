"""Define TaskIR, the document that says what a run has to do, and read it without trusting it.

models     the document as pydantic models, and the kinds of steps; fields: their types and limits
parse      from JSON to a TaskIR and back
json_text  reads JSON strictly and writes it compactly
patterns   regular expressions that match in linear time; formats: dates, times, UUIDs and addresses
check      what a valid task needs that this installation lacks
validation checks values against JSON Schemas, also answers of models and arguments of tools
problems   from errors to problems with a JSON pointer
"""
