"""`python3 -I DIRECTORY` runs this file. It finds the modules beside it, wherever the site has put
them.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.dont_write_bytecode = True
    sys.path[0] = os.path.dirname(here)
    runpy.run_module(os.path.basename(here) + ".hook", run_name="__main__")
