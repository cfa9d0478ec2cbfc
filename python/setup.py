"""Takes librackrail.so into the installed package, where it has been built; see pyproject.toml."""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # older setuptools
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent


def library():
    """The library that RACKRAIL_LIBRARY names, or the first that a build of this tree has left."""
    named = os.environ.get("RACKRAIL_LIBRARY")
    if named:
        return Path(named)
    built = [HERE.parent / "build" / preset / "lib/librackrail.so" for preset in ("release", "dev")]
    return next((path for path in built if path.exists()), None)


class WithLibrary(build_py):
    def run(self):
        super().run()
        found = library()
        if found is not None:
            shutil.copy2(found, Path(self.build_lib) / "rackrail" / "librackrail.so")


class ForThisMachine(bdist_wheel):
    """Any Python 3, but with the library only machines of this kind."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = library() is None

    def get_tag(self):
        tag = super().get_tag()
        return tag if self.root_is_pure else ("py3", "none", tag[2])


setup(cmdclass={"build_py": WithLibrary, "bdist_wheel": ForThisMachine})
