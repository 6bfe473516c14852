/* SPDX-License-Identifier: Apache-2.0
 *
 * keyfile: see keyfile.h.
 */
#include "core/boot/keyfile.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/fd.h"
#include "core/base/hex.h"
#include "core/base/log.h"

#define KEYFILE_MAX 4096

/* Decodes hex digits in place and returns how many bytes they make. Returns len, and changes
 * nothing, when text is not hex. */
static size_t decode_hex(char *text, size_t len)
{
    size_t from = 0, to = len;
    while (from < to && isspace((unsigned char)text[from]))
        from++;
    while (to > from && isspace((unsigned char)text[to - 1]))
        to--;
    if (to - from < 2 * MAC_KEY_SIZE || (to - from) % 2)
        return len;
    for (size_t i = from; i < to; i++) {
        if (hex_digit(text[i]) < 0)
            return len;
    }
    size_t n = (to - from) / 2;
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(hex_digit(text[from + 2 * i]) << 4 | hex_digit(text[from + 2 * i + 1]));
    return n;
}

int keyfile_read(const char *path, uint8_t ret_key[MAC_KEY_SIZE], struct err *err)
{
    char *text = NULL;
    size_t len = 0;
    int rc = fd_read_file(path, KEYFILE_MAX, &text, &len);
    if (rc < 0)
        return err_sys(err, -rc, "cannot read the key file %s", path);
    size_t n = decode_hex(text, len);
    if (n >= MAC_KEY_SIZE) {
        const uint8_t zero[MAC_KEY_SIZE] = {0};
        const struct mac_part part = {text, n};
        mac_make(zero, "hvd key file", &part, 1, ret_key);
    } else {
        rc =
            err_set(err, EINVAL, "the key file %s holds %zu bytes: want at least %d, raw or as hex",
                    path, n, MAC_KEY_SIZE);
    }
    mac_wipe(text, len);
    free(text);
    /* A memfd (/proc/self/fd/N) has every permission bit set but no name: other users cannot open
     * it. */
    struct stat st;
    if (rc == 0 && stat(path, &st) == 0 && st.st_nlink > 0 && (st.st_mode & (S_IRGRP | S_IROTH)))
        log_warn("the key file %s can be read by other users: chmod 600 it", path);
    return rc;
}

int keyfile_from_env(uint8_t ret_key[MAC_KEY_SIZE], struct err *err)
{
    const char *path = env_get("KEY_FILE");
    return path ? keyfile_read(path, ret_key, err) : 1;
}

void keyfile_derive(const uint8_t key[MAC_KEY_SIZE], const uint8_t session[MAC_NONCE_SIZE],
                    uint8_t ret_job_key[MAC_KEY_SIZE])
{
    const struct mac_part part = {session, MAC_NONCE_SIZE};
    mac_make(key, "hvd job key", &part, 1, ret_job_key);
}
