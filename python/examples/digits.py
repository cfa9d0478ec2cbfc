"""Where the examples beside this find the handwritten digits, of 8 × 8 pixels, that they learn from."""
import argparse
from pathlib import Path

DIGITS = Path(__file__).resolve().parent.joinpath("../../configs/data/digits.csv").resolve()


def add_argument(parser):
    parser.add_argument("--digits", type=_existing, default=str(DIGITS), metavar="FILE",
                        help="configs/data/digits.csv of rackrail's source tree")


def _existing(name):
    if not Path(name).is_file():
        raise argparse.ArgumentTypeError(
            f"found no file {name}, expected the digits of rackrail's source tree:"
            " say --digits RACKRAIL/configs/data/digits.csv")
    return Path(name)
