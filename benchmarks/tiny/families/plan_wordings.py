"""List the wordings of requests: how they name work on files, joins, outputs and order."""

from benchmarks.tiny.words import Pool

PREFIXES = Pool(
    ("", "", "", "", "please ", "could you ", "I want you to ", "can you ", "now ", "I need you to "),
    ("", "please ", "could you please ", "now please ", "can you please "),
)
SUMMARIZE = Pool(
    (
        "summarize {x}",
        "summarize {x}",
        "summarize {x}",
        "write a summary of {x}",
        "give me a summary of {x}",
        "make a summary of {x}",
        "make summaries of {x}",
        "sum up {x}",
        "read {x} and summarize",
        "summarize each of {x}",
        "write summaries for {x}",
        "summarize the contents of {x}",
        "make short summaries of {x}",
    ),
    (
        "make a short summary of {x}",
        "write summaries of {x}",
        "give me summaries of {x}",
        "write a short summary of {x}",
        "sum up the contents of {x}",
        "read and summarize {x}",
    ),
)
EXTRACT = Pool(
    (
        "extract {k} from {x}",
        "extract {k} from {x}",
        "extract {k} from {x}",
        "extract the {k} from {x}",
        "get {k} from {x}",
        "get the {k} out of {x}",
        "find {k} in {x}",
        "pull {k} out of {x}",
        "read {x} and extract {k}",
        "extract {k} from each of {x}",
        "from {x}, extract {k}",
    ),
    ("get {k} out of {x}", "find the {k} in {x}", "from {x}, get {k}", "extract the {k} from each of {x}"),
)
LIST = Pool(
    (
        "list each {k} in {x}",
        "list each {k} in {x}",
        "list every {k} in {x}",
        "make a list of each {k} in {x}",
        "find each {k} in {x}",
        "extract each {k} from {x} as a list",
        "read {x} and list each {k}",
    ),
    ("make a list of every {k} in {x}", "find every {k} in {x}", "read {x} and list every {k}"),
)
EACH_SUMMARY = Pool(
    (
        ", then summarize each",
        " and summarize each of them",
        ". Then summarize each one",
        ", and for each write a summary",
    ),
    (" and then summarize each", ". Then for each write a summary", ", then summarize each of them"),
)
EACH_EXTRACT = Pool(
    (
        ", then extract {k} from each",
        " and extract {k} for each of them",
        ". Then extract {k} for each one",
        ", and for each get {k}",
    ),
    (" and then extract {k} for each", ". Then for each get {k}", ", then extract {k} for each of them"),
)
COMPARE = Pool(
    (
        ", then compare them{by}",
        ", then compare them{by}",
        " and compare them{by}",
        " and then compare them{by}",
        ", then compare the {w}{by}",
        ". Then compare them{by}",
        ". Then compare the {w}{by}",
        "; compare the {w}{by}",
        ", and compare the {w}{by}",
        ". Compare them{by}",
        ", then write a comparison of the {w}{by}",
        " and tell me how they compare{by}",
    ),
    (
        ", and compare them{by}",
        " and then compare the {w}{by}",
        "; then compare them{by}",
        ". Then write a comparison of the {w}{by}",
        ", then tell me how they compare{by}",
    ),
)
MERGE = Pool(
    (
        ", then merge them",
        " and merge them",
        " and then merge them",
        ", then merge the {w}",
        ". Then merge them",
        ". Then combine the {w}",
        "; merge the {w}",
        ", and combine the {w}",
        ". Merge them",
        ", then join the {w}",
        " and put them together",
        ", then combine them into one",
    ),
    (
        ", and merge them",
        " and then merge the {w}",
        "; then merge them",
        ". Then join the {w}",
        ", then put them together",
    ),
)
JUDGE = Pool(
    (", then judge the {w}", " and judge it", ", then check the {w}", ". Then judge the {w}", " and check the {w}"),
    (", then judge it", " and judge the {w}", ". Then check the {w}"),
)
CHAIN = Pool(
    (
        ", then extract {k} from the summary",
        " and extract {k} from the summary",
        ". Then get {k} from the summary",
        ", then find {k} in the summary",
    ),
    (
        " and then extract {k} from the summary",
        ". Then extract {k} from the summary",
        ", then get {k} from the summary",
    ),
)
DIAMOND = Pool(
    (
        ", then extract {k} and, separately, {l} from the summary, and merge both",
        ". Then extract {k} from the summary, also {l} from the summary, and merge the results",
        ", then get {k} and, separately, {l} from the summary and merge them",
    ),
    (
        ", then extract {k} and, separately, {l} from the summary, and merge the results",
        ". Then get {k} from the summary, also {l} from the summary, and merge both",
    ),
)
OUTPUT = Pool(
    (
        " and save it as {o}",
        ", and write it to {o}",
        ". Save the result as {o}",
        " and store the result in {o}",
        ". Write the result to {o}",
        ". The output goes to {o}",
        ", saved as {o}",
    ),
    (
        " and save the result as {o}",
        ", and store the result in {o}",
        ". Write it to {o}",
        " and write the result to {o}",
    ),
)
ALSO = Pool(
    (". Also, ", ". Separately, ", "; also ", ", and also ", ". Independently of that, ", "; separately, "),
    ("; and also ", ", and separately ", ". And also, "),
)
AFTERWARDS = Pool(
    (". Afterwards, ", ", afterwards ", ". After that, ", "; after that, ", ". When that is done, "),
    ("; afterwards, ", ", and after that ", "; when that is done, "),
)
ALL_FILES = Pool(
    ("all files", "every file", "all the files", "each file"), ("all of the files", "every one of the files")
)
ALL_OF_KIND = Pool(
    ("all {e} files", "every {e} file", "all the {e} files", "each {e} file"),
    ("all of the {e} files", "every one of the {e} files"),
)
NAMED_FILES = Pool(
    (
        "each file that {x} names",
        "every file named in {x}",
        "the files that {x} lists",
        "all files listed in {x}",
        "each file mentioned in {x}",
    ),
    ("every file that {x} lists", "all files named in {x}", "each file listed in {x}"),
)
INLINE = Pool(
    ("{v} this: {t}", "{v} this text: {t}", "{v} the following: {t}", "{v} this record: {t}"),
    ("{v} the following text: {t}", "{v} the following record: {t}"),
)
FUNCTION = Pool(
    (
        "write a function {s} that returns {p}",
        "write a function {s} that returns {p}",
        "write a Python function {s} that returns {p}",
        "implement a function {s} that returns {p}",
        "write a function {s} returning {p}",
        "make a function {s} that computes {p}",
    ),
    (
        "implement a function {s} returning {p}",
        "write a Python function {s} that computes {p}",
        "make a Python function {s} that returns {p}",
    ),
)
SPECIFIED = Pool(
    ("write the function described in {x}", "implement the function described in {x}", "implement {x}"),
    ("implement the function in {x}", "write the function in {x}"),
)
COMMAND = Pool(
    (
        "write a shell command that {p}",
        "write a shell command that {p}",
        "write a command that {p}",
        "give me a command that {p}",
        "make a shell command that {p}",
        "show me the command that {p}",
    ),
    ("give me a shell command that {p}", "make a command that {p}", "show me a command that {p}"),
)
