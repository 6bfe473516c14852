# SPDX-License-Identifier: Apache-2.0
"""The keys of a cluster: a certificate authority, the API server's certificate, the key that signs service account
tokens, and a kubeconfig for each client of the API server. Made with openssl; valid for a week."""
import base64
import json
import os
import secrets
import subprocess

DAYS = "7"
# user: the groups that Kubernetes' own RBAC rules know
USERS = {
    "admin": ["system:masters"],
    "system:kube-controller-manager": [],
    "system:kube-scheduler": [],
    "system:kube-proxy": [],
    "kwok": ["system:masters"],
}


def openssl(*arguments, text=None):
    done = subprocess.run(["openssl", *arguments], input=text, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]}: {done.stderr.strip()}")


class Keys:
    """Files in one folder; the attributes are their paths."""

    def __init__(self, folder):
        self.folder = folder
        self.tokens = {}
        os.makedirs(folder, mode=0o700, exist_ok=True)
        for name in ("ca.crt", "ca.key", "server.crt", "server.key", "accounts.key", "accounts.pub", "tokens.csv"):
            setattr(self, name.replace(".", "_"), os.path.join(folder, name))

    def make(self, addresses, nodes):
        """addresses: of the API server; nodes: names of real nodes."""
        self.make_ca()
        self.make_certificate("server", "kube-apiserver", addresses)
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.accounts_key)
        openssl("pkey", "-in", self.accounts_key, "-pubout", "-out", self.accounts_pub)
        self.make_tokens(nodes)

    def make_ca(self):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", DAYS,
                "-subj", "/CN=hvd test cluster", "-addext", "basicConstraints=critical,CA:TRUE",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
                "-keyout", self.ca_key, "-out", self.ca_crt)

    def make_certificate(self, name, common_name, addresses):
        """NAME.crt and NAME.key, signed by the CA, for a server at these addresses."""
        key, request, out = (os.path.join(self.folder, name + end) for end in (".key", ".csr", ".crt"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc",
                "-subj", f"/CN={common_name}", "-keyout", key, "-out", request)
        extensions = os.path.join(self.folder, name + ".ext")
        with open(extensions, "w", encoding="ascii") as f:
            f.write("basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nsubjectKeyIdentifier=hash\n")
            f.write("authorityKeyIdentifier=keyid\n")
            f.write("extendedKeyUsage=serverAuth\n")
            kinds = [("IP:" if a.replace(".", "").isdigit() or ":" in a else "DNS:") + a for a in addresses]
            f.write(f"subjectAltName={','.join(kinds)}\n")
        openssl("x509", "-req", "-in", request, "-CA", self.ca_crt, "-CAkey", self.ca_key, "-days", DAYS,
                "-set_serial", str(secrets.randbits(63)), "-extfile", extensions, "-out", out)
        os.unlink(request)
        os.unlink(extensions)

    def make_tokens(self, nodes):
        users = {**USERS, **{f"system:node:{node}": ["system:nodes"] for node in nodes}}
        self.tokens = {user: secrets.token_hex(16) for user in users}
        with open(self.tokens_csv, "w", encoding="ascii") as f:
            for user, groups in users.items():
                f.write(f'{self.tokens[user]},{user},{user},"{",".join(groups)}"\n')

    def write_kubeconfig(self, path, server, user):
        """JSON, which is YAML too."""
        with open(self.ca_crt, "rb") as f:
            authority = base64.b64encode(f.read()).decode()
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "hvd",
            "clusters": [{"name": "hvd", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "hvd", "context": {"cluster": "hvd", "user": user}}],
        }
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as f:
            json.dump(config, f, indent=1)
