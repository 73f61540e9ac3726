import pathlib
import sys

# The tests' own helpers, wherever pytest is started from.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
