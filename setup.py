# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel: the package of core/python, libhvd.so inside it, the programs beside it.

`pip install .` calls this. make builds what is missing or old; HVD_BUILD names a build folder
other than build/. The wheel fits any Python 3 of this machine's architecture: nothing in it is
compiled against Python or torch. The programs use this system's shared libraries.
"""
import functools
import os
import re
import shutil
import subprocess
import sysconfig

from setuptools import Distribution, find_namespace_packages, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

try:
    from setuptools.command.build_scripts import build_scripts
except ImportError:  # setuptools < 68
    from distutils.command.build_scripts import build_scripts

BUILD = os.environ.get("HVD_BUILD", "build")
PROGRAMS = ("hvdrun", "hvd-agent", "hvd-doctor", "hvd-probe", "horovodrun")
# Files beside libhvd.so, which looks for them there. make builds the first only where there is nvcc, the
# second only where there is an MPI.
COMPANIONS = ("hvd_kernels.fatbin", "libhvd_mpi.so")


def version():
    with open("core/include/hvd.h") as header:
        return re.search(r'#define HVD_VERSION "(.*)"', header.read()).group(1)


@functools.lru_cache(None)
def make():
    """Builds what is missing or old. Returns the programs' paths."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}  # setup.py may run under make
    subprocess.check_call(["make", f"BUILD={BUILD}", "lib", "programs", "kernels"], env=env)
    return [os.path.join(BUILD, name) for name in PROGRAMS]


class BuildPackage(build_py):
    """Copies the modules, and the library beside them."""

    def run(self):
        shutil.rmtree(self.build_lib, ignore_errors=True)  # modules that were deleted
        super().run()
        make()
        for name in self.libraries():
            shutil.copyfile(os.path.join(BUILD, name), os.path.join(self.build_lib, "hvd", name))

    @staticmethod
    def libraries():
        return ["libhvd.so"] + [name for name in COMPANIONS if os.path.exists(os.path.join(BUILD, name))]

    def get_outputs(self, include_bytecode=True):
        added = [os.path.join(self.build_lib, "hvd", name) for name in self.libraries()]
        return super().get_outputs(include_bytecode) + added


class BuildPrograms(build_scripts):
    """Programs are copied as they are: there is no first line to adapt."""

    def run(self):
        os.makedirs(self.build_dir, exist_ok=True)
        for program in make():
            target = os.path.join(self.build_dir, os.path.basename(program))
            shutil.copyfile(program, target)
            os.chmod(target, 0o755)


class Wheel(bdist_wheel):
    """The wheel is for this architecture and for every Python 3."""

    def get_tag(self):
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return "py3", "none", platform


class Binary(Distribution):
    """Says that the wheel has compiled files, so that pip does not take it for one of any architecture."""

    def has_ext_modules(self):
        return True


os.chdir(os.path.dirname(os.path.abspath(__file__)))
# setuptools would use build/ too, and egg-info would lie among the sources.
os.makedirs(os.path.join(BUILD, "python"), exist_ok=True)
setup(
    version=version(),
    package_dir={"": "core/python"},
    # hvd/names is no package: hvdrun --horovod puts it into the path, and its folder horovod is one.
    packages=find_namespace_packages("core/python", include=["hvd*"], exclude=["*.__pycache__"]),
    scripts=[os.path.join(BUILD, name) for name in PROGRAMS],
    distclass=Binary,
    cmdclass={"build_py": BuildPackage, "build_scripts": BuildPrograms, "bdist_wheel": Wheel},
    options={
        "build": {"build_base": os.path.join(BUILD, "python")},
        "egg_info": {"egg_base": os.path.join(BUILD, "python")},
    },
)
