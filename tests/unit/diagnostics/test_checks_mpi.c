/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_mpi: MPI, PMIx, UCX, libfabric and hwloc, good and bad, on captured machines.
 */
#include "tests/unit/diagnostics/checkup.h"

#define OPENMPI(version)                                                                           \
    "path /usr/lib/libmpi.so.40\nversion " version "\nlib.0.path /usr/lib/libmpi.so.40\n"          \
    "lib.0.how loader\nlib.0.version " version "\nlib.0.vendor openmpi\n"
#define LIB(i, path, how, version)                                                                 \
    "lib." i ".path " path "\nlib." i ".how " how "\nlib." i ".version " version "\n"

static void link_file(const char *path, const char *target)
{
    char full[512];
    checkup_file(path, "");
    snprintf(full, sizeof(full), "%s/root/%s", checkup.dir, path);
    assert_int_equal(unlink(full), 0);
    assert_int_equal(symlink(target, full), 0);
}

static void test_load(void **state)
{
    checkup_new();
    checkup_expect("mpi-load", CHECK_SKIP, "not asked");
    checkup_answer("mpi", "state timeout 4000\n");
    checkup_expect("mpi-load", CHECK_WARN, "timed out after 4000 ms");
    checkup_answer("mpi", "error libmpi.so.40: cannot open shared object file: No such file or "
                          "directory\n");
    checkup_expect("mpi-load", CHECK_PASS, "no MPI here");
    checkup_answer("mpi", OPENMPI("4.1.4"));
    checkup_expect("mpi-load", CHECK_PASS, "Open MPI 4.1.4");
    assert_string_equal(checkup.result.observed, "4.1.4");
    checkup_answer("mpi",
                   "error libopen-pal.so.40: cannot open shared object file: No such file or "
                   "directory\nlib.0.path /opt/l/libmpi.so.40\nlib.0.how LD_LIBRARY_PATH\n"
                   "lib.0.error libopen-pal.so.40: cannot open\n");
    checkup_expect("mpi-load", CHECK_WARN, "libopen-pal");
    checkup_answer("mpi", "path /x/libmpi.so.40\nload crashed Segmentation fault\n");
    checkup_expect("mpi-load", CHECK_WARN, "crashed");
    checkup_answer("mpi", "error x\n" LIB("0", "/opt/m/lib/libmpi.so.40", "other folder", "4.1.6"));
    checkup_expect("mpi-load", CHECK_INFO, "/opt/m/lib");
}

static void test_known_bad(void **state)
{
    checkup_new();
    checkup_answer("framework", "glibc 2.36\n");
    checkup_answer("mpi", OPENMPI("4.1.6"));
    checkup_expect("mpi-known-bad", CHECK_PASS, "no known fault");
    checkup_answer("mpi", OPENMPI("3.1.3"));
    checkup_expect("mpi-known-bad", CHECK_FAIL, "hang");
    assert_non_null(strstr(checkup.result.why, "glibc")); /* why lists the other rules that match */
    assert_non_null(strstr(checkup.result.fix[FIX_HOST], "4.1.6"));
    checkup_answer("mpi", OPENMPI("4.0.5"));
    checkup_expect("mpi-known-bad", CHECK_INFO, "CVE");
    checkup_answer("ucx", LIB("0", "/usr/lib/libucp.so.0", "loader", "1.13.1"));
    checkup_expect("mpi-known-bad", CHECK_WARN, "UCX");
    checkup_answer("mpi", "path /x\nlib.0.path /x\nlib.0.vendor mpich\nlib.0.version 4.0.2\n");
    checkup_expect("mpi-known-bad", CHECK_PASS, "MPICH 4.0.2");
    checkup_answer("mpi", "path /x\nlib.0.path /x\nlib.0.error broken\n");
    checkup_expect("mpi-known-bad", CHECK_SKIP, "broken");
}

static void test_mpirun(void **state)
{
    checkup_new();
    checkup_answer("mpi", OPENMPI("4.1.4"));
    checkup_env("PATH", "relative:/opt/none:/usr/bin");
    checkup_expect("mpi-path-mismatch", CHECK_PASS, "no mpirun");
    checkup_expect("mpi-orted", CHECK_PASS, "no mpirun");
    link_file("usr/bin/mpirun", "/etc/alternatives/mpirun");
    link_file("etc/alternatives/mpirun", "/usr/bin/mpirun.openmpi");
    link_file("usr/bin/mpirun.openmpi", "orterun");
    checkup_file("usr/bin/orterun", "");
    checkup_expect("mpi-path-mismatch", CHECK_PASS, "/usr/bin/orterun");
    checkup_expect("mpi-orted", CHECK_WARN, "orted is not in PATH");
    checkup_file("usr/bin/orted", "");
    checkup_expect("mpi-orted", CHECK_PASS, "/usr/bin/orted");
    checkup_answer("mpi", OPENMPI("5.0.7"));
    checkup_expect("mpi-orted", CHECK_WARN, "prted");
    checkup_answer("mpi", "path /opt/m/lib/libmpi.so.40\nlib.0.path /opt/m/lib/libmpi.so.40\n"
                          "lib.0.vendor openmpi\nlib.0.version 4.1.6\n");
    checkup_expect("mpi-path-mismatch", CHECK_WARN, "two installations");
    checkup_answer("mpi", "path /usr/lib/libmpi.so.12\nlib.0.path /usr/lib/libmpi.so.12\n"
                          "lib.0.vendor mpich\nlib.0.version 4.0\n");
    checkup_expect("mpi-path-mismatch", CHECK_FAIL, "is not");
    checkup_expect("mpi-orted", CHECK_PASS, "not Open MPI");
    link_file("usr/bin/mpirun.openmpi", "mpiexec.hydra");
    checkup_answer("mpi", OPENMPI("4.1.4"));
    checkup_expect("mpi-path-mismatch", CHECK_FAIL, "MPICH's");
    link_file("usr/bin/mpirun", "/usr/bin/mpirun"); /* a link to itself: the search ends */
    checkup_expect("mpi-orted", CHECK_PASS, "");
}

static void test_root(void **state)
{
    checkup_new();
    checkup_answer("mpi", OPENMPI("4.1.4"));
    checkup_expect("mpi-root", CHECK_SKIP, "/proc");
    checkup_file("proc/self/status", "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n");
    checkup_expect("mpi-root", CHECK_PASS, "uid 1000");
    checkup_file("proc/self/status", "Name:\tx\nUid:\t0\t0\t0\t0\n");
    checkup_expect("mpi-root", CHECK_PASS, "no mpirun");
    checkup_file("usr/bin/mpirun", "");
    checkup_expect("mpi-root", CHECK_INFO, "refuses");
    checkup_env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    checkup_expect("mpi-root", CHECK_INFO, "refuses");
    checkup_env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    checkup_expect("mpi-root", CHECK_PASS, "allow mpirun to run as root");
}

static void test_interfaces(void **state)
{
    checkup_new();
    checkup_expect("mpi-btl-if", CHECK_PASS, "itself");
    checkup_file("sys/class/net/eth0/x", "");
    checkup_env("OMPI_MCA_btl_tcp_if_include", "eth0,10.0.0.0/16");
    checkup_expect("mpi-btl-if", CHECK_PASS, "eth0");
    checkup_env("OMPI_MCA_btl_tcp_if_exclude", "lo");
    checkup_expect("mpi-btl-if", CHECK_FAIL, "exclude each other");
    checkup_new();
    checkup_file("sys/class/net/eth0/x", "");
    checkup_env("OMPI_MCA_btl_tcp_if_include", "eth0,ib7");
    checkup_expect("mpi-btl-if", CHECK_FAIL, "no interface ib7");
    checkup_new();
    checkup_env("OMPI_MCA_btl_tcp_if_exclude", "docker0");
    checkup_expect("mpi-btl-if", CHECK_WARN, "leaves lo in");
    checkup_new();
    checkup_env("OMPI_MCA_btl_tcp_if_exclude", "docker0,lo");
    checkup_expect("mpi-btl-if", CHECK_PASS, "docker0,lo");
}

static void test_parts(void **state)
{
    checkup_new();
    checkup_answer("pmix", "error libpmix.so.2: No such file or directory\n");
    checkup_expect("pmix-version", CHECK_PASS, "no PMIx");
    checkup_answer("pmix", LIB("0", "/l/libpmix.so.2", "loader", "4.2.6"));
    checkup_expect("pmix-version", CHECK_PASS, "4.2.6");
    checkup_answer("pmix", LIB("0", "/l/libpmix.so.2", "loader", "4.2.2"));
    checkup_expect("pmix-version", CHECK_INFO, "CVE-2023-41915");
    checkup_answer("pmix", LIB("0", "/l/libpmix.so.2", "loader", "2.1.1"));
    checkup_expect("pmix-version", CHECK_WARN, "before 3");
    checkup_answer("pmix", "lib.0.path /l/libpmix.so.2\nlib.0.error cut off\n");
    checkup_expect("pmix-version", CHECK_WARN, "cut off");

    checkup_answer("ucx", LIB("0", "/l/libucp.so.0", "loader", "1.15.0"));
    checkup_expect("ucx-version", CHECK_PASS, "1.15.0");
    checkup_answer("ucx", LIB("0", "/l/libucp.so.0", "loader", "1.8.0"));
    checkup_expect("ucx-version", CHECK_WARN, "corrupts");
    checkup_answer("ucx",
                   LIB("0", "/l/a", "loader", "1.15.0") LIB("1", "/l/b", "ld.so.cache", "1.16"));
    checkup_expect("ucx-version", CHECK_INFO, "several");

    checkup_answer("ucx", "load timeout\n" LIB("0", "/l/libucp.so.0", "ld.so.cache", "1.15.0"));
    checkup_expect("ucx-version", CHECK_WARN, "UCX does not load: timeout");

    checkup_answer("libfabric", LIB("0", "/l/libfabric.so.1", "loader", "1.10"));
    checkup_expect("libfabric-version", CHECK_PASS, "1.10");
    checkup_file("sys/class/infiniband/efa_0/x", "");
    checkup_expect("libfabric-version", CHECK_FAIL, "1.11");
    checkup_answer("libfabric", LIB("0", "/l/libfabric.so.1", "loader", "1.22"));
    checkup_expect("libfabric-version", CHECK_PASS, "1.22");
}

static void test_gds(void **state)
{
    checkup_new();
    checkup_answer("mpi", OPENMPI("5.0.7"));
    checkup_expect("pmix-gds", CHECK_PASS, "only Open MPI 4");
    checkup_answer("mpi", OPENMPI("4.1.4"));
    checkup_expect("pmix-gds", CHECK_PASS, "outside");
    checkup_file(".dockerenv", "");
    checkup_expect("pmix-gds", CHECK_INFO, "PMIX_MCA_gds=hash");
    checkup_env("PMIX_MCA_gds", "ds12");
    checkup_expect("pmix-gds", CHECK_WARN, "ds12");
    checkup_new();
    checkup_answer("mpi", OPENMPI("4.1.4"));
    checkup_env("PMIX_MCA_gds", "hash");
    checkup_expect("pmix-gds", CHECK_PASS, "hash");
}

static void test_hwloc(void **state)
{
    checkup_new();
    checkup_answer("mpi", "error libmpi.so.40: No such file\n");
    checkup_answer("hwloc", "error libhwloc.so.15: No such file or directory\n");
    checkup_expect("hwloc-version", CHECK_PASS, "no hwloc");
    checkup_expect("hwloc-multiple", CHECK_PASS, "no hwloc");
    checkup_answer("hwloc", LIB("0", "/l/libhwloc.so.15", "loader", "2.8.0"));
    checkup_expect("hwloc-version", CHECK_PASS, "2.8.0");
    checkup_expect("hwloc-multiple", CHECK_PASS, "one hwloc");
    checkup_answer("hwloc", LIB("0", "/l/libhwloc.so.25", "loader", "3.0.0"));
    checkup_expect("hwloc-version", CHECK_PASS, "3.0.0");
    checkup_answer("mpi", OPENMPI("5.0.7"));
    checkup_expect("hwloc-version", CHECK_FAIL, "hwloc 3");
    checkup_answer("hwloc", LIB("0", "/l/libhwloc.so.5", "loader", "1.11.9"));
    checkup_expect("hwloc-version", CHECK_WARN, "1.x");
    checkup_answer("hwloc", "lib.0.path /l/libhwloc.so.15\nlib.0.error cut\n");
    checkup_expect("hwloc-version", CHECK_WARN, "cut");

    checkup_answer("hwloc", "error /o/libhwloc.so.15: file too short\n" LIB(
                                "0", "/l/libhwloc.so.15", "ld.so.cache", "2.8.0"));
    checkup_expect("hwloc-version", CHECK_WARN, "file too short");

    const char *two = LIB("0", "/l/libhwloc.so.15", "loader", "2.8.0")
        LIB("1", "/o/libhwloc.so.5", "LD_LIBRARY_PATH", "1.11.0");
    checkup_answer("hwloc", two);
    checkup_answer("mpi", OPENMPI("4.1.4") "lib.0.hwloc_path /o/libhwloc.so.5\n");
    checkup_expect("hwloc-multiple", CHECK_FAIL, "libmpi takes /o/libhwloc.so.5");
    checkup_answer("hwloc", LIB("0", "/l/libhwloc.so.15", "loader", "2.8.0")
                                LIB("1", "/opt/x/libhwloc.so.5", "other folder", "1.11.0"));
    checkup_expect("hwloc-multiple", CHECK_WARN, "does not look");
    checkup_answer("hwloc", LIB("0", "/l/libhwloc.so.15", "loader", "2.8.0")
                                LIB("1", "/m/libhwloc.so.15", "ld.so.cache", "2.11.0"));
    checkup_expect("hwloc-multiple", CHECK_INFO, "one major");

    checkup_answer("framework", "glibc 2.36\n");
    checkup_expect("hwloc-tf-symbols", CHECK_PASS, "no TensorFlow");
    checkup_answer("framework", "tensorflow.0.path /t\ntensorflow.0.version 1.15.0\n");
    checkup_expect("hwloc-tf-symbols", CHECK_WARN, "1.15.0");
    checkup_answer("framework", "tensorflow.0.path /t\ntensorflow.0.version 2.4.0\n");
    checkup_expect("hwloc-tf-symbols", CHECK_PASS, "hides");
}

static void test_tables(void **state)
{
    checkup_texts(&checks_mpi);
    checkup_texts(&checks_mpi_parts);
    checkup_texts(&checks_hwloc);
    checkup_all_seen(&checks_mpi);
    checkup_all_seen(&checks_mpi_parts);
    checkup_all_seen(&checks_hwloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),       cmocka_unit_test(test_known_bad),
        cmocka_unit_test(test_mpirun),     cmocka_unit_test(test_root),
        cmocka_unit_test(test_interfaces), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_gds),        cmocka_unit_test(test_hwloc),
        cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
