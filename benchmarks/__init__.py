"""Speed and memory of pagewheel beside other engines, measured in alternating rounds."""
