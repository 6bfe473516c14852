/* SPDX-License-Identifier: Apache-2.0
 *
 * framework: the software that training needs: libhvd, Python, torch, Horovod's extensions, the C
 * library. All of it from files that hvd-probe has read; nothing is imported. See check.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/backends.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/libs.h"
#include "diagnostics/facts.h"

#define OBJECT "object"

static void check_build(const struct view *v, struct result *r)
{
    const struct answer *hvd = machine_answer(v->machine, "hvd");
    struct backends b;
    char text[RESULT_TEXT];
    if (!result_needs(r, hvd, "libhvd"))
        return;
    const char *loaded = answer_str_at(hvd, "lib", 0, "loaded", NULL);
    const char *error = answer_str_at(hvd, "lib", 0, "error", "it does not load");
    backends_of(v->machine, &b);
    backends_text(&b, text, sizeof(text));
    result_observed(r, "%s", loaded ? loaded : error);
    result_expected(r, "libhvd.so.0");
    if (!loaded && strstr(error, "No such file"))
        result_info(r, "libhvd is neither beside this program nor where the loader looks (%s)",
                    text);
    else if (!loaded)
        result_fail(r, "libhvd does not load: %s", error);
    else
        result_pass(r, "libhvd %s (%s); %s", answer_str_at(hvd, "lib", 0, "version", "?"), loaded,
                    text);
}

/* ---- Horovod's extensions ---- */

static bool is_kind(const struct answer *a, int i, const char *kind)
{
    return strcmp(answer_str_at(a, OBJECT, i, "kind", ""), kind) == 0;
}

/* The first object of a kind, -1: none. */
static int first_of(const struct answer *a, const char *kind)
{
    int n = answer_count(a, OBJECT);
    for (int i = 0; i < n; i++) {
        if (is_kind(a, i, kind))
            return i;
    }
    return -1;
}

static void check_horovod_nccl(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "elf");
    if (!result_needs(r, a, "installed extensions"))
        return;
    int n = answer_count(a, OBJECT), first = first_of(a, "horovod");
    if (first < 0) {
        result_pass(r, "no Horovod here; hvd finds NCCL when it runs");
        return;
    }
    for (int i = first; i < n; i++) {
        const char *linked = answer_str_at(a, OBJECT, i, "nccl", NULL);
        const char *inside = answer_str_at(a, OBJECT, i, "nccl_inside", NULL);
        if (!is_kind(a, i, "horovod") || (!linked && !inside))
            continue;
        result_observed(r, "%s", linked ? linked : inside);
        if (linked && strcmp(linked, "missing") == 0)
            result_fail(r, "%s needs libnccl, which is not installed",
                        answer_str_at(a, OBJECT, i, "path", "?"));
        else
            result_pass(r, "%s has NCCL (%s)", answer_str_at(a, OBJECT, i, "path", "?"),
                        linked ? linked : inside);
        return;
    }
    result_observed(r, "no NCCL");
    result_expected(r, "NCCL");
    if (v->setting->profiles & PROFILE_GPU)
        result_warn(r, "Horovod was built without NCCL (%s): GPUs go through MPI or gloo",
                    answer_str_at(a, OBJECT, first, "path", "?"));
    else
        result_info(r, "Horovod was built without NCCL: fine on CPUs");
}

static void check_links(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "elf");
    char bad[RESULT_TEXT / 2] = "", with[RESULT_TEXT / 2] = "";
    if (!result_needs(r, a, "installed extensions"))
        return;
    int n = answer_count(a, OBJECT), seen = 0;
    for (int i = 0; i < n; i++) {
        const char *path = answer_str_at(a, OBJECT, i, "path", "?");
        const char *missing = answer_str_at(a, OBJECT, i, "missing", NULL);
        const char *error = answer_str_at(a, OBJECT, i, "error", NULL);
        const char *mpi = answer_str_at(a, OBJECT, i, "mpi", NULL);
        size_t at = strlen(bad);
        if (!is_kind(a, i, "horovod") && !is_kind(a, i, "hvd"))
            continue;
        seen++;
        if (missing || error)
            snprintf(bad + at, sizeof(bad) - at, "%s%s: %s %s", at ? "; " : "", path,
                     missing ? "missing" : "damaged,", missing ? missing : error);
        if (mpi && !with[0])
            snprintf(with, sizeof(with), ", MPI from %s", mpi);
    }
    result_observed(r, "%s", *bad ? bad : "all there");
    result_expected(r, "all there");
    if (*bad)
        result_fail(r, "%s", bad);
    else if (seen)
        result_pass(r, "%d extension%s find%s all libraries%s", seen, seen == 1 ? "" : "s",
                    seen == 1 ? "s" : "", with);
    else
        result_pass(r, "no extension of Horovod or hvd here");
}

/* ---- the C library ---- */

static void check_glibc(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "elf");
    const struct facts facts = {.view = v};
    char what[64], bad[RESULT_TEXT / 2] = "";
    if (!result_needs(r, a, "installed extensions"))
        return;
    const char *have = answer_str(a, "glibc", NULL);
    if (!have) {
        result_skip(r, "the C library does not report its version");
        return;
    }
    int n = answer_count(a, OBJECT);
    for (int i = 0; i < n; i++) {
        const char *needs = answer_str_at(a, OBJECT, i, "glibc", NULL);
        size_t at = strlen(bad);
        if (needs && version_compare(needs, have) > 0)
            snprintf(bad + at, sizeof(bad) - at, "%s%s needs %s", at ? ", " : "",
                     answer_str_at(a, OBJECT, i, "path", "?"), needs);
    }
    result_observed(r, "%s", have);
    result_expected(r, ">= 2.28");
    snprintf(what, sizeof(what), "glibc %.40s", have);
    if (*bad)
        result_fail(r, "glibc is %s, %s", have, bad);
    else if (!facts_judge(r, &facts, "glibc", have, what))
        result_pass(r, "glibc %s is new enough for %d extension%s", have, n, n == 1 ? "" : "s");
}

/* ---- Python ---- */

/* The Python version that a packages folder belongs to: python3.11 of
 * ".../python3.11/dist-packages". */
static const char *site_version(const char *path, char dst[16])
{
    const char *at = strstr(path, "/python3.");
    dst[0] = '\0';
    if (at)
        snprintf(dst, 16, "%.*s", (int)strcspn(at + 7, "/"), at + 7);
    return dst;
}

static void check_python(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "framework");
    const struct facts facts = {.view = v};
    char site[16], what[128];
    if (!result_needs(r, a, "Python"))
        return;
    const char *path = answer_str_at(a, "python", 0, "path", NULL);
    const char *version = answer_str_at(a, "python", 0, "version", NULL);
    const char *torch = answer_str_at(a, "torch", 0, "version", NULL);
    const char *where = answer_str_at(a, "torch", 0, "path", NULL);
    const char *hvd = answer_str_at(a, "hvd", 0, "path", NULL);
    if (!path) {
        result_info(r, "no python3 in PATH: programs in C only");
        return;
    }
    snprintf(what, sizeof(what), "%.60s%s%.20s", path, version ? " is Python " : "",
             version ? version : "");
    result_observed(r, "%s", version ? version : path);
    result_expected(r, ">= 3.9");
    if (version && facts_judge(r, &facts, "python", version, what))
        return;
    if (where && version && *site_version(where, site) && strcmp(site, version) != 0)
        result_warn(r, "%s, but torch is installed for Python %s (%s)", what, site, where);
    else if (torch && answer_count(a, "torch") > 1)
        result_info(r, "%s; torch is here %d times, %s first (%s)", what, answer_count(a, "torch"),
                    torch, where);
    else
        result_pass(r, "%s, torch %s, hvd %s", what, torch ? torch : "not here",
                    hvd ? hvd : "not installed");
}

#define HOROVOD "https://horovod.readthedocs.io/en/stable/"

static const struct check rows[] = {
    {.id = "hvd-build",
     .code = "HVD9101",
     .group = GROUP_FRAMEWORK,
     .level = 1,
     .probes = {"hvd", "framework", "nccl", "mpi"},
     .run = check_build,
     .title = "libhvd loads, and what it can use",
     .why =
         "Without the library `import hvd` and every program that was linked with it stop at once.",
     /* Not `pip install hvd`: hvd is not on PyPI, and a package of that name would be a stranger's.
      */
     .fix = {"-v PATH/build/bundle:/hvd:ro (`make bundle` in hvd's checkout), or RUN make install "
             "there in the image",
             "an HvdJob brings hvd into its pods; elsewhere an image with hvd (images/README.md)",
             "make install in hvd's checkout (README.md); with another PREFIX: LD_LIBRARY_PATH="
             "PREFIX/lib"},
     .action = ACTION_INSTALL,
     .explain = "libhvd.so beside hvd-probe, else as the loader finds it, is loaded in a child "
                "process. The summary lists the frameworks and libraries that it can use, as "
                "`hvdrun --check-build` does. A missing libhvd is information only: the image may "
                "hold just the launcher.",
     .refs = {HOROVOD "install.html"}},
    {.id = "horovod-build-nccl",
     .code = "HVD9102",
     .group = GROUP_FRAMEWORK,
     .level = 1,
     .probes = {"elf"},
     .run = check_horovod_nccl,
     .title = "Horovod was built with NCCL",
     .why = "A Horovod without NCCL runs on GPUs and is two to ten times slower: gradients pass "
            "through the CPU.",
     .fix = {"RUN HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir --force-reinstall "
             "horovod; or "
             "use hvd, which needs no build",
             "an image in which Horovod was built that way",
             "HOROVOD_GPU_OPERATIONS=NCCL pip install --no-cache-dir "
             "--force-reinstall horovod; or use hvd"},
     .action = ACTION_INSTALL,
     .explain = "mpi_lib*.so of an installed Horovod either needs libnccl.so.2 (DT_NEEDED) or has "
                "NCCL's text inside. With profile gpu it warns if neither is so.",
     .refs = {HOROVOD "gpus.html"}},
    {.id = "horovod-lib-links",
     .code = "HVD9103",
     .group = GROUP_FRAMEWORK,
     .level = 1,
     .probes = {"elf"},
     .run = check_links,
     .title = "extensions find their libraries",
     .why = "\"ImportError: libmpi.so.40: cannot open shared object file\" or \"Extension "
            "horovod.torch has not been built\".",
     .fix = {"use the image in which Horovod was built, or build Horovod in this one",
             "an image in which Horovod was built",
             "ldconfig, LD_LIBRARY_PATH; else build Horovod "
             "again: pip install --no-cache-dir "
             "--force-reinstall horovod"},
     .action = ACTION_INSTALL,
     .explain =
         "Each library that mpi_lib*.so and libhvd.so need is looked for as the loader does it: "
         "RPATH, "
         "LD_LIBRARY_PATH, RUNPATH, ld.so.cache, default folders. Libraries that Python loads "
         "before (torch's own) are found by their RPATH only.",
     .refs = {HOROVOD "troubleshooting.html",
              "https://man7.org/linux/man-pages/man8/ld.so.8.html"}},
    {.id = "glibc-min",
     .code = "HVD9104",
     .group = GROUP_FRAMEWORK,
     .level = 1,
     .probes = {"elf"},
     .run = check_glibc,
     .title = "the C library is new enough",
     .why = "\"version `GLIBC_2.34' not found\": the extension was built on a newer distribution.",
     .fix = {"build in the image itself, or FROM a newer distribution",
             "an image of a newer distribution",
             "a newer distribution; or wheels built for "
             "manylinux_2_28"},
     .action = ACTION_VERSION,
     .explain = "The highest GLIBC_x.y that installed extensions ask for against the C library's "
                "version; below 2.28 warns, as torch's wheels need it, below 2.25 fails, as libhvd "
                "does.",
     .refs = {"https://github.com/pypa/manylinux",
              "https://sourceware.org/glibc/wiki/Glibc%20Timeline"}},
    {.id = "python-env",
     .code = "HVD9105",
     .group = GROUP_FRAMEWORK,
     .level = 1,
     .probes = {"framework"},
     .run = check_python,
     .title = "Python and torch",
     .why = "Another python3 than the one with torch in it comes first in PATH: \"No module named "
            "torch\" on one machine, and another version on the next.",
     .fix = {"ENV PATH=/opt/venv/bin:$PATH of the Python that has torch",
             "command: [hvdrun, ..., /opt/venv/bin/python3, train.py]",
             "hvdrun ... /usr/bin/python3 train.py: name the interpreter"},
     .action = ACTION_ENVIRONMENT,
     .explain = "The first python3 in PATH and the packages torch and hvd in the folders of each "
                "interpreter and of PYTHONPATH; torch for another version of Python warns. Whether "
                "all workers have the same version is tested between them (hvdrun --doctor).",
     .refs = {"https://docs.python.org/3/library/venv.html"}},
};

const struct check_table checks_framework = {rows, sizeof(rows) / sizeof(*rows)};
