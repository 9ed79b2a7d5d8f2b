"""The wheel has binaries for one platform, and no extension module: any Python 3 will do."""
from setuptools import Distribution, setup

base = Distribution().get_command_class("bdist_wheel")  # of setuptools since 70.1, before of the package wheel


class Wheel(base):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"bdist_wheel": Wheel})
