"""Builds the kernel library, and a source distribution that is as the repository. pyproject.toml says all else.

The library is called through ctypes and is no Python module, so it belongs to no version of Python: neither its name
nor the wheel's has one. With MINDING_KERNELS=0 in the environment it is left out, and the wheel fits any platform.
"""

import os
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

_WANTED = os.environ.get("MINDING_KERNELS", "1") != "0"


class WithKernels(Distribution):
    """With the library, or as a package of Python files only."""

    def has_ext_modules(self):
        return _WANTED and super().has_ext_modules()


class BuildKernels(build_ext):
    """Builds the library under a name without a version of Python."""

    def finalize_options(self):
        super().finalize_options()
        if not _WANTED:
            self.extensions = []

    def get_ext_filename(self, fullname):
        return f"{Path(*fullname.split('.'))}.so"


class Wheel(bdist_wheel):
    """A wheel for every Python 3 on its platform."""

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class Source(sdist):
    """The files that MANIFEST.in names; packages are links to their folders, as in the repository."""

    def make_release_tree(self, base_dir, files):
        links = [path for path in Path("src/minding").iterdir() if path.is_symlink()]
        super().make_release_tree(base_dir, [file for file in files if not {*links} & {*Path(file).parents}])
        for link in links:
            Path(base_dir, link).symlink_to(os.readlink(link))


setup(distclass=WithKernels, cmdclass={"build_ext": BuildKernels, "bdist_wheel": Wheel, "sdist": Source})
