"""Takes librackrail.so into the installed package, where it has been built; see pyproject.toml."""

import os
import shutil
from pathlib import Path

from setuptools import Command, Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        bdist_wheel = None  # pip fetches it, once it has been told by setuptools, unless it may not

HERE = Path(__file__).resolve().parent


def library():
    """The library that RACKRAIL_LIBRARY names, or the first that a build of this tree has left."""
    named = os.environ.get("RACKRAIL_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise SystemExit(f"RACKRAIL_LIBRARY: found no file {named}, expected librackrail.so")
        return Path(named)
    built = [HERE.parent / "build" / preset / "lib/librackrail.so" for preset in ("release", "dev")]
    return next((path for path in built if path.exists()), None)


class WithLibrary(build_py):
    def run(self):
        super().run()
        found = library()
        if found is not None:
            shutil.copy2(found, Path(self.build_lib) / "rackrail" / "librackrail.so")


class OfThisMachine(Distribution):
    def has_ext_modules(self):
        return library() is not None


class NoWheel(Command):
    user_options = []

    def initialize_options(self):
        raise SystemExit("rackrail: found neither setuptools 70.1 nor the package wheel, expected one of"
                         " them: without --no-build-isolation, pip fetches it")

    finalize_options = run = initialize_options


class ForThisMachine(bdist_wheel or Command):
    """Any Python 3, but with the library only machines of this kind."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = library() is None

    def get_tag(self):
        tag = super().get_tag()
        return tag if self.root_is_pure else ("py3", "none", tag[2])


setup(distclass=OfThisMachine,
      cmdclass={"build_py": WithLibrary,
                "bdist_wheel": ForThisMachine if bdist_wheel else NoWheel})
