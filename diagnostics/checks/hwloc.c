/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc: which hwloc this image has, and whether Open MPI gets the one it was built with. Two of
 * them in one process are the usual cause of "Data unpack would read past end of buffer". See
 * check.h.
 */
#include <stdio.h>
#include <string.h>

#include "diagnostics/check.h"
#include "diagnostics/checks/libs.h"
#include "diagnostics/facts.h"

static void check_version(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "hwloc");
    const struct facts facts = {.view = v};
    char what[RESULT_TEXT];
    if (!result_needs(r, a, "hwloc"))
        return;
    if (libs_absent(a)) {
        result_pass(r, "no hwloc library here; hvd has its own linked in, Open MPI may have, too");
        return;
    }
    const char *trouble = libs_trouble(a);
    if (trouble) {
        result_observed(r, "%s", trouble);
        result_expected(r, "a libhwloc that loads");
        result_warn(r, "hwloc does not load: %s", trouble);
        return;
    }
    const char *version = answer_str(a, "version", libs_version(a, 0));
    const char *path = answer_str_at(a, "lib", 0, "path", "?");
    if (!version) {
        result_warn(r, "%s: %s", path, answer_str_at(a, "lib", 0, "error", "no version"));
        return;
    }
    result_observed(r, "%s", version);
    result_expected(r, "2.x");
    snprintf(what, sizeof(what), "hwloc API %s (%s)", version, path);
    if (!facts_judge(r, &facts, "hwloc", version, what))
        result_pass(r, "%s", what);
}

/* The libhwloc that libmpi.so needs, as the loader would find it; NULL: none (libmpi has hwloc
 * linked in, or there is no libmpi). */
static const char *of_mpi(const struct view *v)
{
    return answer_str_at(machine_answer(v->machine, "mpi"), "lib", 0, "hwloc_path", NULL);
}

static void check_multiple(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "hwloc");
    char list[RESULT_TEXT / 2];
    if (!result_needs(r, a, "hwloc"))
        return;
    const char *mpi = of_mpi(v);
    int reachable = libs_distinct(a, true, true), all = libs_distinct(a, true, false);
    result_observed(r, "%d", all);
    result_expected(r, "1");
    libs_list(a, list, sizeof(list));
    if (all == 0)
        result_pass(r, "no hwloc here");
    else if (reachable > 1)
        result_fail(r, "the loader finds %d major versions of hwloc: %s%s%s", reachable, list,
                    mpi ? "; libmpi takes " : "", mpi ? mpi : "");
    else if (all > 1)
        result_warn(r, "%d major versions of hwloc, one of them where the loader does not look: %s",
                    all, list);
    else if (libs_distinct(a, false, false) > 1)
        result_info(r, "several hwloc of one major version: %s", list);
    else
        result_pass(r, "one hwloc: %s", list);
}

static void check_tensorflow(const struct view *v, struct result *r)
{
    const struct answer *f = machine_answer(v->machine, "framework");
    const struct answer *mpi = machine_answer(v->machine, "mpi");
    if (!result_needs(r, f, "installed packages") || !result_needs(r, mpi, "MPI"))
        return;
    const char *version = answer_str_at(f, "tensorflow", 0, "version", NULL);
    bool openmpi = strcmp(answer_str_at(mpi, "lib", 0, "vendor", ""), "openmpi") == 0;
    bool old =
        version && version_compare(version, "1.14") >= 0 && version_compare(version, "2") < 0;
    if (old && openmpi)
        result_warn(r, "TensorFlow %s exports hwloc symbols of its own, and Open MPI %s is here",
                    version, answer_str_at(mpi, "lib", 0, "version", "?"));
    else if (version)
        result_pass(r, "TensorFlow %s%s", version, old ? ", no Open MPI" : " hides its hwloc");
    else
        result_pass(r, "no TensorFlow here");
}

static const struct check rows[] = {
    {.id = "hwloc-version",
     .code = "HVD4051",
     .group = GROUP_CPU,
     .level = 1,
     .probes = {"hwloc", "mpi"},
     .run = check_version,
     .title = "version of hwloc",
     .why = "Open MPI does not work with hwloc 3, and hwloc 1.x beside 2.x breaks its start.",
     .fix = {"RUN apt-get install -y libhwloc15 (Debian, Ubuntu: hwloc 2) in the image",
             "an image whose hwloc is 2.x",
             "install hwloc 2.x: apt-get install libhwloc15, dnf install hwloc-libs"},
     .action = ACTION_VERSION,
     .explain =
         "hwloc_get_api_version() of the libhwloc that the loader takes, against the version "
         "rules: 3 and newer fails where Open MPI is, 1.x and "
         "2.1.0 warn. This is the version of the interface: hwloc 2.9 says 2.8.0.",
     .refs = {"https://docs.open-mpi.org/en/v5.0.x/installing-open-mpi/"
              "required-support-libraries.html",
              "https://github.com/open-mpi/hwloc/blob/master/NEWS"}},
    {.id = "hwloc-multiple",
     .code = "HVD4052",
     .group = GROUP_CPU,
     .level = 1,
     .probes = {"hwloc", "mpi"},
     .run = check_multiple,
     .title = "one version of hwloc",
     .why =
         "With two hwlocs mpirun and the ranks speak different formats: \"Data unpack would read "
         "past end of buffer in file grpcomm_direct.c\" or a crash at start.",
     .fix = {"build the image with one hwloc: Open MPI configured with --with-hwloc=/usr, no other "
             "copy in LD_LIBRARY_PATH",
             "env: LD_LIBRARY_PATH without the folder of the second copy",
             "remove the second copy's folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d, run "
             "ldconfig; do not purge hwloc packages blindly, Open MPI needs one"},
     .action = ACTION_REMOVE,
     .explain =
         "Every libhwloc.so.* that the loader reaches (LD_LIBRARY_PATH, ld.so.cache, default "
         "folders) and those in other usual places. Two major versions that the loader "
         "reaches fail; one in another folder warns. `ldd $(which orterun)` shows what mpirun "
         "takes.",
     .refs = {"https://github.com/open-mpi/ompi/issues/4437"}},
    {.id = "hwloc-tf-symbols",
     .code = "HVD4053",
     .group = GROUP_CPU,
     .level = 1,
     .probes = {"framework", "mpi"},
     .run = check_tensorflow,
     .title = "TensorFlow's own hwloc",
     .why =
         "TensorFlow 1.14 and 1.15 export hwloc symbols; Open MPI in the same process then calls "
         "the wrong ones and crashes in MPI_Init.",
     .fix = {"pip install 'tensorflow>=2' in the image, or start with hvdrun instead of mpirun",
             "the same image with TensorFlow 2", "pip install 'tensorflow>=2'"},
     .action = ACTION_VERSION,
     .explain = "TensorFlow's version by its package metadata, Open MPI by libmpi. Only 1.14 and "
                "1.15 are concerned; importing mpi4py or horovod before tensorflow hides it.",
     .refs = {"https://github.com/horovod/horovod/issues/1123",
              "https://github.com/tensorflow/tensorflow/pull/29807"}},
};

const struct check_table checks_hwloc = {rows, sizeof(rows) / sizeof(*rows)};
