"""`python -m pagewheel`: the command line, and `--cmake-dir` for build scripts."""

import sys


def main() -> None:
    """Print the folder of the CMake package config, or run the command line."""
    if sys.argv[1:] == ["--cmake-dir"]:
        from pagewheel import cmake_dir

        print(cmake_dir())
        return
    from pagewheel.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
