"""openvino_genai's names, signatures, defaults and verdicts beside pagewheel's.

`record` runs where openvino-genai is installed, and writes what it finds to
tests/data/openvino_genai.
`compare` runs where pagewheel is, and writes what differs into docs/differences.md.
"""
