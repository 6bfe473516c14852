/* SPDX-License-Identifier: Apache-2.0
 *
 * checkup: for tests of checks. A captured machine is built file by file in a temporary folder, one
 * check is run on it as the doctor does, and its result is compared. The states that each check had
 * are recorded: call checkup_all_seen() at the end. Include this file in one source file per test
 * program; one thread.
 */
#ifndef HVD_TESTS_CHECKUP_H
#define HVD_TESTS_CHECKUP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "diagnostics/doctor.h"
#include "diagnostics/registry.h"
#include "diagnostics/rules.h"

#define CHECKUP_SEEN 256

static struct {
    char dir[64];
    struct setting setting;
    struct result result;
    struct {
        const struct check *check;
        bool good, bad; /* good: pass or info; bad: info, warn or fail */
    } seen[CHECKUP_SEEN];
} checkup;

/* Writes DIR/PATH, and makes the folders above it. */
static inline void checkup_write(const char *path, const char *text, size_t len)
{
    char full[1024];
    snprintf(full, sizeof(full), "%s/%s", checkup.dir, path);
    for (char *s = full + strlen(checkup.dir) + 1; (s = strchr(s, '/')); s++) {
        *s = '\0';
        mkdir(full, 0700);
        *s = '/';
    }
    /* Not through a symbolic link, which could lead out of the folder. */
    unlink(full);
    FILE *f = fopen(full, "wx");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* Writes a file under the captured machine's root, such as "proc/meminfo". */
static inline void checkup_file(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "root/%s", path);
    checkup_write(full, text, strlen(text));
}

/* Writes a probe's answer, in lines. The first line "state timeout 4000" means that the probe
 * did not answer in 4000 ms. */
static inline void checkup_answer(const char *probe, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "answers/%s", probe);
    checkup_write(full, text, strlen(text));
}

/* Adds a variable to the captured environment. */
static inline void checkup_env(const char *name, const char *value)
{
    char full[512];
    snprintf(full, sizeof(full), "%s/root/proc/self", checkup.dir);
    if (access(full, F_OK) != 0)
        checkup_file("proc/self/environ", "");
    snprintf(full, sizeof(full), "%s/root/proc/self/environ", checkup.dir);
    FILE *f = fopen(full, "a");
    assert_non_null(f);
    fprintf(f, "%s=%s%c", name, value, 0);
    assert_int_equal(fclose(f), 0);
}

static inline void checkup_remove(void)
{
    char command[128];
    if (!checkup.dir[0])
        return;
    snprintf(command, sizeof(command), "rm -rf %s", checkup.dir);
    if (system(command) != 0)
        fprintf(stderr, "could not remove %s\n", checkup.dir);
    checkup.dir[0] = '\0';
}

/* An empty machine and a plain setting: CPUs, one rank, level 1. */
static inline void checkup_new(void)
{
    const char *tmp = getenv("TMPDIR");
    checkup_remove();
    snprintf(checkup.dir, sizeof(checkup.dir), "%.40s/hvd-checkup-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(checkup.dir));
    checkup_write("root/empty", "", 0);
    checkup.setting = (struct setting){
        .profiles = PROFILE_CPU, .local_ranks = 1, .gpus = -1, .level = 1, .timeout_ms = 1000};
}

/* Runs one check. The result is valid until the next call. */
static inline const struct result *checkup_run(const char *id)
{
    const struct choice choice = {.only = &id, .nonly = 1};
    struct machine m;
    struct report report;
    struct err err = {0};
    assert_int_equal(machine_open_captured(&m, checkup.dir, &err), 0);
    assert_int_equal(
        doctor_run(&m, &checkup.setting, &choice, rules_builtin(), NULL, NULL, &report, &err), 0);
    assert_int_equal(report.n, 1);
    checkup.result = report.results[0];
    report_fini(&report);
    machine_close(&m);
    const struct check *check = checkup.result.check;
    for (size_t i = 0; i < CHECKUP_SEEN; i++) {
        if (checkup.seen[i].check && checkup.seen[i].check != check)
            continue;
        enum check_status status = checkup.result.status;
        bool good = status == CHECK_PASS || status == CHECK_INFO;
        checkup.seen[i].check = check;
        checkup.seen[i].good |= good;
        checkup.seen[i].bad |= status == CHECK_INFO || status == CHECK_WARN || status == CHECK_FAIL;
        break;
    }
    return &checkup.result;
}

/* The check ends with this status, and its summary contains these words. */
#define checkup_expect(id, want, words) checkup_expect_at(id, want, words, __FILE__, __LINE__)

static inline void checkup_expect_at(const char *id, enum check_status want, const char *words,
                                     const char *file, int line)
{
    const struct result *r = checkup_run(id);
    if (r->status == want && strstr(r->summary, words))
        return;
    print_error("%s:%d: %s is %s \"%s\", want %s \"...%s...\"\n", file, line, id,
                check_status_name(r->status), r->summary, check_status_name(want), words);
    _fail(file, line);
}

/* Every check of the table had a good and a bad result. */
static inline void checkup_all_seen(const struct check_table *table)
{
    int missing = 0;
    for (size_t i = 0; i < table->n; i++) {
        bool good = false, bad = false;
        for (size_t k = 0; k < CHECKUP_SEEN; k++) {
            if (checkup.seen[k].check == &table->checks[i]) {
                good = checkup.seen[k].good;
                bad = checkup.seen[k].bad;
            }
        }
        if (good && bad)
            continue;
        print_error("%s: never seen %s\n", table->checks[i].id, good ? "bad" : "good");
        missing++;
    }
    assert_int_equal(missing, 0);
}

/* Every check has its texts for users. */
static inline void checkup_texts(const struct check_table *table)
{
    for (size_t i = 0; i < table->n; i++) {
        const struct check *c = &table->checks[i];
        const struct check *found = NULL;
        if (!c->id || !c->code || !c->title || !c->why || !c->explain || !c->run || !c->refs[0])
            print_error("%s: a text is missing\n", c->id ? c->id : "?");
        assert_true(c->id && c->code && c->title && c->why && c->explain && c->run && c->refs[0]);
        assert_true(c->fix[FIX_DOCKER] || c->fix[FIX_K8S] || c->fix[FIX_HOST]);
        assert_true(c->action != ACTION_NONE);
        assert_int_equal(registry_find(c->code, &found, NULL), 0);
        assert_ptr_equal(found, c);
    }
}

#endif
