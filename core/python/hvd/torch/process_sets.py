# SPDX-License-Identifier: Apache-2.0
"""Process sets, under the name that programs written for Horovod use."""
from ..process_sets import (  # noqa: F401
    ProcessSet,
    add_process_set,
    define_rule,
    find_process_set,
    form_process_set,
    global_process_set,
    known_process_sets,
    remove_process_set,
    split_process_set,
)
