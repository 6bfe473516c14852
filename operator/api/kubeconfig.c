/* SPDX-License-Identifier: Apache-2.0
 *
 * kubeconfig: see kubeconfig.h. All files are open as libyaml documents; a lookup searches them in
 * order.
 */
#include "operator/api/kubeconfig.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/api/yaml.h"

#define FILES_MAX 16
#define PEM_MAX   (256u << 10)

struct configs {
    struct yaml_file files[FILES_MAX];
    size_t n;
};

static void configs_fini(struct configs *c)
{
    for (size_t i = 0; i < c->n; i++)
        yaml_file_close(&c->files[i]);
}

static int open_one(struct configs *c, const char *path, struct err *err)
{
    if (c->n == FILES_MAX)
        return err_set(err, EINVAL, "KUBECONFIG has more than %d files", FILES_MAX);
    int rc = yaml_file_open(&c->files[c->n], path, err);
    c->n += rc == 0;
    return rc;
}

static int open_all(struct configs *c, const char *paths, bool list, struct err *err)
{
    auto_free char *copy = strdup(paths);
    char *rest = copy, *path;
    if (!copy)
        return err_set(err, ENOMEM, "no memory");
    if (!list)
        return open_one(c, paths, err);
    while ((path = strsep(&rest, ":"))) {
        int rc = *path ? open_one(c, path, err) : -ENOENT;
        if (rc < 0 && rc != -ENOENT)
            return rc;
    }
    return c->n > 0 ? 0 : err_set(err, ENOENT, "no file of KUBECONFIG=%s exists", paths);
}

/* ---- finding -------------------------------------------------------------------------------- */

/* A mapping in a file, such as the field "cluster" of one entry of the list "clusters". */
struct section {
    struct yaml_file *file;
    yaml_node_t *node;
    char what[160]; /* for messages: "user admin" */
};

static int find_section(struct configs *c, const char *list, const char *field, const char *name,
                        struct section *ret, struct err *err)
{
    for (size_t i = 0; i < c->n; i++) {
        struct yaml_file *f = &c->files[i];
        yaml_node_t *entries = yaml_find(f, yaml_top(f), list);
        for (size_t k = 0; k < yaml_length(entries); k++) {
            yaml_node_t *entry = yaml_item(f, entries, k);
            const char *is = yaml_text(yaml_find(f, entry, "name"));
            if (!is || strcmp(is, name) != 0)
                continue;
            *ret = (struct section){.file = f, .node = yaml_find(f, entry, field)};
            snprintf(ret->what, sizeof(ret->what), "%s: %s %s", f->path, field, name);
            return 0;
        }
    }
    return err_set(err, ENOENT, "kubeconfig: no %s named %s", field, name);
}

static const char *field_of(const struct section *s, const char *field)
{
    const char *text = yaml_text(yaml_find(s->file, s->node, field));
    return text && *text ? text : NULL;
}

static int copy_text(const struct section *s, const char *field, char **dst, struct err *err)
{
    const char *text = field_of(s, field);
    if (!text)
        return 0;
    /* The text becomes a header or an address: a line break would inject another header. */
    if (strpbrk(text, "\r\n"))
        return err_set(err, EINVAL, "%s: %s has a line break in it", s->what, field);
    *dst = strdup(text);
    return *dst ? 0 : err_set(err, ENOMEM, "no memory");
}

/* Copies a path. A relative one is completed with the directory of its kubeconfig file. */
static int copy_path(const struct section *s, const char *field, char **dst, struct err *err)
{
    int rc = copy_text(s, field, dst, err);
    if (rc < 0 || !*dst)
        return rc;
    *dst = yaml_file_beside(s->file, TAKE(*dst));
    return *dst ? 0 : err_set(err, ENOMEM, "no memory");
}

static int copy_base64(const struct section *s, const char *field, char **dst, struct err *err)
{
    const char *text = field_of(s, field), *end;
    size_t n = text ? strlen(text) : 0, len;
    if (!text)
        return 0;
    if (n > PEM_MAX)
        return err_set(err, EINVAL, "%s: %s is too long", s->what, field);
    auto_free char *pem = malloc(n + 1);
    if (!pem)
        return err_set(err, ENOMEM, "no memory");
    if (sodium_base642bin((unsigned char *)pem, n, text, n, " \n", &len, &end,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        *end || memchr(pem, '\0', len))
        return err_set(err, EINVAL, "%s: %s is not base64 of a text", s->what, field);
    pem[len] = '\0';
    *dst = TAKE(pem);
    return 0;
}

/* ---- filling -------------------------------------------------------------------------------- */

static int take_cluster(const struct section *s, struct access *a, struct err *err)
{
    const char *insecure = field_of(s, "insecure-skip-tls-verify");
    int rc = copy_text(s, "server", &a->server, err);
    if (rc == 0)
        rc = copy_path(s, "certificate-authority", &a->ca_file, err);
    if (rc == 0)
        rc = copy_base64(s, "certificate-authority-data", &a->ca_pem, err);
    if (rc == 0)
        rc = copy_text(s, "tls-server-name", &a->tls_server_name, err);
    if (rc == 0)
        rc = copy_text(s, "proxy-url", &a->proxy_url, err);
    if (rc < 0)
        return rc;
    if (!a->server ||
        (strncmp(a->server, "https://", 8) != 0 && strncmp(a->server, "http://", 7) != 0))
        return err_set(err, EINVAL, "%s: want server: https://host[:port]", s->what);
    for (size_t n = strlen(a->server); n > 0 && a->server[n - 1] == '/'; n--)
        a->server[n - 1] = '\0';
    a->insecure = insecure && strcmp(insecure, "true") == 0;
    if (a->insecure && (a->ca_file || a->ca_pem))
        return err_set(
            err, EINVAL,
            "%s: insecure-skip-tls-verify and a certificate authority exclude each other", s->what);
    return 0;
}

/* Converts a list of words, or with pairs a list of {name, value}, into a NULL-terminated array. */
static int take_words(const struct section *s, yaml_node_t *list, bool pairs, size_t at, char **dst,
                      struct err *err)
{
    for (size_t i = 0; i < yaml_length(list); i++) {
        yaml_node_t *item = yaml_item(s->file, list, i);
        const char *name = yaml_text(pairs ? yaml_find(s->file, item, "name") : item);
        const char *value = pairs ? yaml_text(yaml_find(s->file, item, "value")) : "";
        if (!name || !value || (pairs && (!*name || strchr(name, '='))))
            return err_set(err, EINVAL, "%s: exec: want %s", s->what,
                           pairs ? "env as a list of name and value" : "args as a list of words");
        if (asprintf(&dst[at + i], pairs ? "%s=%s" : "%s", name, value) < 0) {
            dst[at + i] = NULL;
            return err_set(err, ENOMEM, "no memory");
        }
    }
    return 0;
}

static int take_exec(const struct section *user, yaml_node_t *node, struct access *a,
                     struct err *err)
{
    struct section s = *user;
    struct access_exec *e = &a->exec;
    auto_free char *command = NULL;
    s.node = node;
    yaml_node_t *args = yaml_find(s.file, node, "args"), *env = yaml_find(s.file, node, "env");
    const char *info = field_of(&s, "provideClusterInfo");
    int rc = copy_text(&s, "apiVersion", &e->api_version, err);
    if (rc == 0)
        rc = copy_text(&s, "command", &command, err);
    if (rc < 0)
        return rc;
    if (!e->api_version || !command)
        return err_set(err, EINVAL, "%s: exec: want command and apiVersion", s.what);
    e->cluster_info = info && strcmp(info, "true") == 0;
    const char *hint = field_of(&s, "installHint");
    e->hint = hint ? strdup(hint) : NULL;
    e->argv = calloc(yaml_length(args) + 2, sizeof(*e->argv));
    e->env = calloc(yaml_length(env) + 1, sizeof(*e->env));
    /* A command without a slash is searched in PATH. */
    char *path = strchr(command, '/') ? yaml_file_beside(s.file, TAKE(command)) : TAKE(command);
    if (!path || !e->argv || !e->env || (hint && !e->hint)) {
        free(path);
        return err_set(err, ENOMEM, "no memory");
    }
    e->argv[0] = path;
    rc = take_words(&s, args, false, 1, e->argv, err);
    return rc < 0 ? rc : take_words(&s, env, true, 0, e->env, err);
}

static int take_user(const struct section *s, struct access *a, struct err *err)
{
    yaml_node_t *exec = yaml_find(s->file, s->node, "exec");
    if (yaml_find(s->file, s->node, "auth-provider"))
        return err_set(err, ENOTSUP, "%s: auth-provider was removed from Kubernetes; use exec",
                       s->what);
    int rc = copy_path(s, "client-certificate", &a->cert_file, err);
    if (rc == 0)
        rc = copy_base64(s, "client-certificate-data", &a->cert_pem, err);
    if (rc == 0)
        rc = copy_path(s, "client-key", &a->key_file, err);
    if (rc == 0)
        rc = copy_base64(s, "client-key-data", &a->key_pem, err);
    if (rc == 0)
        rc = copy_path(s, "tokenFile", &a->token_file, err);
    if (rc == 0)
        rc = copy_text(s, "token", &a->token, err);
    if (rc == 0)
        rc = copy_text(s, "username", &a->username, err);
    if (rc == 0)
        rc = copy_text(s, "password", &a->password, err);
    if (rc < 0)
        return rc;
    if (!(a->cert_file || a->cert_pem) != !(a->key_file || a->key_pem))
        return err_set(err, EINVAL,
                       "%s: a client certificate needs its key, and a key its certificate",
                       s->what);
    return exec ? take_exec(s, exec, a, err) : 0;
}

static const char *current_context(struct configs *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const char *name =
            yaml_text(yaml_find(&c->files[i], yaml_top(&c->files[i]), "current-context"));
        if (name && *name)
            return name;
    }
    return NULL;
}

static int fill(struct configs *c, const char *context, struct access *a, struct err *err)
{
    struct section at, cluster, user;
    const char *name = context ? context : current_context(c);
    if (!name)
        return err_set(err, ENOENT, "kubeconfig: no current-context");
    int rc = find_section(c, "contexts", "context", name, &at, err);
    if (rc < 0)
        return rc;
    const char *in = field_of(&at, "cluster"), *as = field_of(&at, "user");
    if (!in)
        return err_set(err, EINVAL, "%s: no cluster", at.what);
    rc = find_section(c, "clusters", "cluster", in, &cluster, err);
    if (rc == 0)
        rc = take_cluster(&cluster, a, err);
    if (rc == 0 && as)
        rc = find_section(c, "users", "user", as, &user, err);
    if (rc == 0 && as)
        rc = take_user(&user, a, err);
    return rc < 0 ? rc : copy_text(&at, "namespace", &a->namespace, err);
}

int kubeconfig_load(const char *paths, bool list, const char *context, struct access *ret,
                    struct err *err)
{
    CLEANUP(configs_fini) struct configs c = {0};
    struct access a = {0};
    int rc = open_all(&c, paths, list, err);
    if (rc == 0)
        rc = fill(&c, context, &a, err);
    if (rc < 0)
        access_fini(&a);
    else
        *ret = a;
    return rc;
}
