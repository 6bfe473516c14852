# SPDX-License-Identifier: Apache-2.0
"""horovod.common.basics"""
from hvd import Adasum, Average, Max, Min, Product, Sum, world


class HorovodBasics:
    """The functions of hvd.world and the names of the operations as attributes. Arguments are ignored: there is one library
    for all frameworks."""

    def __init__(self, pkg_path=None, *args):
        self.Average, self.Sum, self.Adasum = Average, Sum, Adasum
        self.Min, self.Max, self.Product = Min, Max, Product
        for name in world.__all__:
            setattr(self, name, getattr(world, name))
