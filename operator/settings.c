/* SPDX-License-Identifier: Apache-2.0
 *
 * settings: see settings.h.
 */
#include "operator/settings.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define DAY     86400 /* seconds */
#define UID_MAX 4294967294
#define YEAR_S  (365 * 24 * 3600)

static const char help[] =
    "usage: hvd-operator [option]...\n"
    "\n"
    "Runs HvdJobs (hvd.dev/v1alpha1) on a Kubernetes cluster: creates their pods as a gang, all "
    "or\n"
    "none, replaces lost workers, and reports in each job's status what the job waits for.\n"
    "\n"
    "  --kubeconfig FILE          how to reach the API server; default: KUBECONFIG, else the\n"
    "                             service account of its pod, else ~/.kube/config\n"
    "  --context NAME             a context of the kubeconfig; default: its current-context\n"
    "  --namespace NAME           run only jobs of this namespace, and do not list nodes\n"
    "                             (HVD_WATCH_NAMESPACE)\n"
    "  --metrics-addr ADDR:PORT   serve /metrics, /healthz, /readyz and the web page there\n"
    "                             (:8080; \"off\": not at all)\n"
    "  --page local|all|off       who may read the web page: users of kubectl port-forward,\n"
    "                             everyone who reaches the port, or nobody (local; HVD_PAGE)\n"
    "  --plane-socket PATH        wait there for hvd-plane, which serves the agents in pods;\n"
    "                             without it pods run without agents\n"
    "  --plane-uid UID            the user that hvd-plane runs as (that of this process)\n"
    "  --plane-timeout SECONDS    a leader whose hvd-plane serves no agents for this long\n"
    "                             releases the lease, so that another operator can lead (30)\n"
    "  --agents-url URL           the URL at which agents reach hvd-plane\n"
    "                             (https://hvd-operator.POD_NAMESPACE.svc:7443; outside a pod\n"
    "                             there is no default)\n"
    "  --certificate-life SECONDS life of the certificate of hvd-plane, which is renewed after "
    "two\n"
    "                             thirds (604800, a week)\n"
    "  --ca-life SECONDS          the certificate authority is replaced after this time "
    "(31536000,\n"
    "                             a year)\n"
    "  --bundle IMAGE             the image with agent, library and Python package; without it\n"
    "                             each job's image must have them at /hvd (HVD_BUNDLE_IMAGE)\n"
    "  --bundle-mount             mount that image as an image volume, which the container\n"
    "                             runtime of every node must support (HVD_BUNDLE_MOUNT=1)\n"
    "  --namespace-share PERCENT  of each resource of the cluster, pods included, that the\n"
    "                             gangs of one namespace may hold (100)\n"
    "  --probes N                 gangs of which it is not known whether they fit that may be\n"
    "                             tried at a time, one for each namespace and node pool, half\n"
    "                             of them at most in one namespace (8)\n"
    "  --gang-timeout-max SECONDS limit of the jobs' gang.timeoutSeconds (1800)\n"
    "  --drain-limit SECONDS      how long a job may delay the drain of a node (900)\n"
    "  --drain-signals LIST       changes of the taints and labels that announce a drain:\n"
    "                             KEY:ACTION,KEY=VALUE:ACTION,...; ACTION is none, note, evict,\n"
    "                             replace or leave; see hvd-operator(1)\n"
    "  --no-leader-election       lead without a lease: only for a single operator\n"
    "  --lease NAME               the Lease for leader election (hvd-operator)\n"
    "  --lease-namespace NAME     its namespace (POD_NAMESPACE, or that of the kubeconfig)\n"
    "  --lease-duration SECONDS   a lease without a renewal expires after this time (15)\n"
    "  --lease-renew SECONDS      the leader stops after this time without a renewal (10)\n"
    "  --lease-retry SECONDS      time between two attempts to renew or acquire it (2)\n"
    "  --identity NAME            holderIdentity in the lease (POD_NAME and a random number)\n"
    "  -v, --verbose              log what it does; twice: each write\n"
    "  --explain-states           print the state tables of jobs and of caches\n"
    "  --version                  print the version\n"
    "  -h, --help                 this text\n";

const char *settings_help(void)
{
    return help;
}

enum {
    OPT_KUBECONFIG = 256,
    OPT_CONTEXT,
    OPT_NAMESPACE,
    OPT_METRICS,
    OPT_PAGE,
    OPT_SOCKET,
    OPT_UID,
    OPT_PLANE_TIMEOUT,
    OPT_URL,
    OPT_CERTIFICATE,
    OPT_CA,
    OPT_BUNDLE,
    OPT_MOUNT,
    OPT_SHARE,
    OPT_PROBES,
    OPT_GANG_TIMEOUT,
    OPT_DRAIN_LIMIT,
    OPT_DRAIN_SIGNALS,
    OPT_NO_ELECTION,
    OPT_LEASE,
    OPT_LEASE_NAMESPACE,
    OPT_DURATION,
    OPT_RENEW,
    OPT_RETRY,
    OPT_IDENTITY,
    OPT_STATES,
    OPT_VERSION,
};

static const struct option table[] = {
    {"kubeconfig", required_argument, NULL, OPT_KUBECONFIG},
    {"context", required_argument, NULL, OPT_CONTEXT},
    {"namespace", required_argument, NULL, OPT_NAMESPACE},
    {"metrics-addr", required_argument, NULL, OPT_METRICS},
    {"page", required_argument, NULL, OPT_PAGE},
    {"plane-socket", required_argument, NULL, OPT_SOCKET},
    {"plane-uid", required_argument, NULL, OPT_UID},
    {"plane-timeout", required_argument, NULL, OPT_PLANE_TIMEOUT},
    {"agents-url", required_argument, NULL, OPT_URL},
    {"certificate-life", required_argument, NULL, OPT_CERTIFICATE},
    {"ca-life", required_argument, NULL, OPT_CA},
    {"bundle", required_argument, NULL, OPT_BUNDLE},
    {"bundle-mount", no_argument, NULL, OPT_MOUNT},
    {"namespace-share", required_argument, NULL, OPT_SHARE},
    {"probes", required_argument, NULL, OPT_PROBES},
    {"gang-timeout-max", required_argument, NULL, OPT_GANG_TIMEOUT},
    {"drain-limit", required_argument, NULL, OPT_DRAIN_LIMIT},
    {"drain-signals", required_argument, NULL, OPT_DRAIN_SIGNALS},
    {"no-leader-election", no_argument, NULL, OPT_NO_ELECTION},
    {"lease", required_argument, NULL, OPT_LEASE},
    {"lease-namespace", required_argument, NULL, OPT_LEASE_NAMESPACE},
    {"lease-duration", required_argument, NULL, OPT_DURATION},
    {"lease-renew", required_argument, NULL, OPT_RENEW},
    {"lease-retry", required_argument, NULL, OPT_RETRY},
    {"identity", required_argument, NULL, OPT_IDENTITY},
    {"verbose", no_argument, NULL, 'v'},
    {"explain-states", no_argument, NULL, OPT_STATES},
    {"version", no_argument, NULL, OPT_VERSION},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* An integer from least to most; unit is "" or begins with a space. */
static int take_number(const char *name, const char *text, int least, int most, const char *unit,
                       int *ret, struct err *err)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n < least || n > most)
        return err_set(err, EINVAL, "--%s %.40s: want %d to %d%s", name, text, least, most, unit);
    *ret = (int)n;
    return 0;
}

static int take_seconds(const char *name, const char *text, int least, int most, int *ret,
                        struct err *err)
{
    return take_number(name, text, least, most, " seconds", ret, err);
}

static int take_uid(const char *text, long *ret, struct err *err)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n > UID_MAX)
        return err_set(err, EINVAL, "--plane-uid %.40s: want a number of a user", text);
    *ret = n;
    return 0;
}

static int take_text(const char *name, const char *text, const char **ret, struct err *err)
{
    if (!*text)
        return err_set(err, EINVAL, "--%s: the value is empty", name);
    *ret = text;
    return 0;
}

static int take_page(const char *name, const char *text, enum page_access *ret, struct err *err)
{
    static const char *const words[] = {
        [PAGE_LOCAL] = "local", [PAGE_ALL] = "all", [PAGE_OFF] = "off"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i]) == 0) {
            *ret = (enum page_access)i;
            return 0;
        }
    return err_set(err, EINVAL, "%s %.40s: want local, all or off", name, text);
}

static int take(int opt, struct settings *o, enum settings_what *what, struct err *err)
{
    int rc;
    switch (opt) {
    case OPT_KUBECONFIG:
        return take_text("kubeconfig", optarg, &o->kubeconfig, err);
    case OPT_CONTEXT:
        return take_text("context", optarg, &o->context, err);
    case OPT_NAMESPACE:
        return take_text("namespace", optarg, &o->namespace, err);
    case OPT_METRICS:
        o->metrics = strcmp(optarg, "off") == 0 ? "" : optarg;
        return 0;
    case OPT_PAGE:
        return take_page("--page", optarg, &o->page, err);
    case OPT_SOCKET:
        return take_text("plane-socket", optarg, &o->plane_socket, err);
    case OPT_UID:
        return take_uid(optarg, &o->plane_uid, err);
    case OPT_PLANE_TIMEOUT:
        return take_seconds("plane-timeout", optarg, 1, DAY, &o->plane_s, err);
    case OPT_URL:
        return take_text("agents-url", optarg, &o->agents_url, err);
    case OPT_CERTIFICATE:
        return take_seconds("certificate-life", optarg, 1, YEAR_S, &o->certificate_s, err);
    case OPT_CA:
        return take_seconds("ca-life", optarg, 1, YEAR_S, &o->ca_s, err);
    case OPT_BUNDLE:
        return take_text("bundle", optarg, &o->bundle, err);
    case OPT_MOUNT:
        o->mount = true;
        return 0;
    case OPT_SHARE:
        return take_number("namespace-share", optarg, 1, 100, " percent", &o->queue.share, err);
    case OPT_PROBES:
        return take_number("probes", optarg, 1, QUEUE_PROBES_MAX, "", &o->queue.probes, err);
    case OPT_GANG_TIMEOUT:
        return take_seconds("gang-timeout-max", optarg, 1, YEAR_S, &o->queue.gang_timeout_max, err);
    case OPT_DRAIN_LIMIT:
        return take_seconds("drain-limit", optarg, 0, DAY, &o->drain_s, err);
    case OPT_DRAIN_SIGNALS:
        rc = signals_change(&o->signals, optarg, err);
        return rc < 0 ? err_prefix(err, "--drain-signals") : 0;
    case OPT_NO_ELECTION:
        o->elect = false;
        return 0;
    case OPT_LEASE:
        return take_text("lease", optarg, &o->lease, err);
    case OPT_LEASE_NAMESPACE:
        return take_text("lease-namespace", optarg, &o->lease_namespace, err);
    case OPT_DURATION:
        return take_seconds("lease-duration", optarg, 1, 3600, &o->lease_s, err);
    case OPT_RENEW:
        return take_seconds("lease-renew", optarg, 1, 3600, &o->renew_s, err);
    case OPT_RETRY:
        return take_seconds("lease-retry", optarg, 1, 3600, &o->retry_s, err);
    case OPT_IDENTITY:
        return take_text("identity", optarg, &o->identity, err);
    case 'v':
        o->verbose++;
        return 0;
    case OPT_STATES:
        *what = SETTINGS_STATES;
        return 0;
    case OPT_VERSION:
        *what = SETTINGS_VERSION;
        return 0;
    case 'h':
        *what = SETTINGS_HELP;
        return 0;
    default:
        return -EINVAL;
    }
}

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int check(const struct settings *o, struct err *err)
{
    if (o->retry_s >= o->renew_s || o->renew_s >= o->lease_s)
        return err_set(err, EINVAL,
                       "--lease-retry (%d) must be less than --lease-renew (%d), and that less "
                       "than --lease-duration (%d)",
                       o->retry_s, o->renew_s, o->lease_s);
    return 0;
}

int settings_parse(int argc, char **argv, struct settings *ret, enum settings_what *ret_what,
                   struct err *err)
{
    struct settings o = {.namespace = from_environment("HVD_WATCH_NAMESPACE"),
                         .metrics = ":8080",
                         .plane_uid = -1,
                         .plane_s = 30,
                         .certificate_s = 7 * 24 * 3600,
                         .ca_s = YEAR_S,
                         .bundle = from_environment("HVD_BUNDLE_IMAGE"),
                         .mount = from_environment("HVD_BUNDLE_MOUNT") != NULL,
                         .queue = {.share = 100, .probes = 8, .gang_timeout_max = 1800},
                         .drain_s = 900,
                         .elect = true,
                         .lease = "hvd-operator",
                         .lease_s = 15,
                         .renew_s = 10,
                         .retry_s = 2,
                         .pod_name = from_environment("POD_NAME"),
                         .pod_namespace = from_environment("POD_NAMESPACE")};
    enum settings_what what = SETTINGS_RUN;
    signals_default(&o.signals);
    const char *page = from_environment("HVD_PAGE");
    int opt, rc = page ? take_page("HVD_PAGE", page, &o.page, err) : 0;
    opterr = 0;
    optind = 1;
    while (rc == 0 && (opt = getopt_long(argc, argv, "+hv", table, NULL)) != -1)
        if (opt == '?')
            rc = err_set(err, EINVAL, "%.60s: unknown option, or its value is missing; see --help",
                         argv[optind - 1]);
        else
            rc = take(opt, &o, &what, err);
    if (rc == 0 && optind < argc)
        rc = err_set(err, EINVAL, "%.60s: unexpected argument; see --help", argv[optind]);
    rc = rc < 0 ? rc : check(&o, err);
    if (rc < 0)
        return rc;
    *ret = o;
    *ret_what = what;
    return 0;
}
