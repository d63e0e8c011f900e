"""From a vocabulary, whoever wrote it, to OpenVINO's graphs of tokenizer and detokenizer."""
