#!/bin/sh
# Have a request in words done by the largest of the small models that is here, or arrives within two minutes; then a
# TaskIR document by the embedded models. Called by `make run`.
set -eu
bin=.venv/bin
model=${DEMO_MODEL:-}
request="Write news.json from harbour.txt, garden.txt, bakery.txt and council.txt: a list of objects with file, place and headline"
ORCHESTRATOR_HOME=$PWD/.demo
export ORCHESTRATOR_HOME

arrives() {  # NAME: whether the model is here, or is downloaded within two minutes; the next try resumes a download
    timeout 120 $bin/orchestrator models get "$1" --folder .demo/models > /dev/null
}

if [ -z "$model" ]; then
    echo "Getting a small model that writes English and code (1.1 GB, once; at most two minutes)"
    if arrives qwen2.5-coder-1.5b; then
        model=$(ls .demo/models/Qwen/Qwen2.5-Coder-1.5B-*/*.gguf)
    elif arrives smollm2-135m; then
        echo "It did not arrive in time, so SmolLM2-135M follows, which is ten times smaller and often wrong"
        model=smollm2-135m
    fi
fi
if [ -n "$model" ]; then
    $bin/orchestrator init --model "$model" --out .demo/registry.yaml --force < /dev/null
    rm -rf .demo/news
    $bin/orchestrator --registry .demo/registry.yaml run "$request" --dir examples/texts --out .demo/news ||
        echo "$model did not manage it, which happens to so small a model; the embedded models follow"
    [ ! -d .demo/news ] || { echo "What it wrote:"; tail -v -n +1 .demo/news/*; }
else
    echo "No real model could be had, so this shows the embedded models only"
    $bin/orchestrator run "Summarize a, b, c and d, then compare them" --dir examples/records
fi
$bin/orchestrator run examples/fanout.json --dir examples/records
echo "This was $bin/orchestrator: $bin/orchestrator --help lists its commands, $bin/orchestrator init uses models of your own"
