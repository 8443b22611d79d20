"""A repository of NVIDIA's driver in rpms on a simulated node, for real dnf and zypper.

The packages are named like NVIDIA's. One has a unit that gives its version to the simulated driver
at boot; while it is upgraded the library begins to refuse the old module. `dkms` is a script, since
a node without the headers of a kernel builds no module: it lists what a package told it.
"""

OLD, NEW, PARTLY = "550.54.14", "570.86.15", "570.124.06"  # the last not of every package
KERNEL = "5.14.0-427.13.1"

_MAKE = r"""
set -e
mkdir -p /etc/rpm /srv/repo /tmp/build /etc/yum.repos.d /etc/zypp/repos.d /etc/dnf/vars
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros
mv /var/lib/dpkg/status /var/lib/dpkg/status.away
rm -f /etc/dnf/aliases.d/zypper.conf /etc/dnf/plugins/local.conf
echo 9 >/etc/dnf/vars/releasever
echo module_platform_id=platform:el9 >>/etc/dnf/dnf.conf
printf '[cuda]\nname=cuda\nbaseurl=file:///srv/repo\ngpgcheck=0\nenabled=1\n' |
    tee /etc/zypp/repos.d/cuda.repo >/etc/yum.repos.d/cuda.repo
cat >/usr/sbin/dkms <<'END'
#!/bin/sh
sed "s/.*/nvidia\/&, $(uname -r), x86_64: installed/" /var/lib/built
END
chmod 755 /usr/sbin/dkms
cd /tmp/build
module() { # the unit of what stands for a module
cat <<'END'
[Unit]
Before=nvidia-persistenced.service nvidia-fabricmanager.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'v=/usr/share/nvidia/kmod-nvidia-open-dkms; \
    echo "driver_version = $(cat $v)" >>/run/nodevet-sim/nvml.state; \
    mount --bind $v /sys/module/nvidia/version'
END
}
sub() { # name, its tags: a package of the spec
    printf '%%package -n %s\nSummary: x\n%b\n%%description -n %s\nx\n' $1 "$2" $1
    printf '%%files -n %s\n/usr/share/nvidia/%s\n' $1 $1
}
make() { # version, fabric manager or not
{ cat <<END
%define __os_install_post %{nil}
Name: nvidia-driver
Epoch: 3
Version: $1
Release: 1.el9
Summary: x
License: x
Requires: nvidia-driver-libs = 3:$1-1.el9, kmod-nvidia-open-dkms = 3:$1-1.el9
%description
x
%files
/usr/share/nvidia/nvidia-driver
END
sub nvidia-driver-libs
sub kmod-nvidia-open-dkms
echo /usr/lib/systemd/system/simulated-module.service
echo /usr/lib/systemd/system/multi-user.target.wants/simulated-module.service
sub kmod-nvidia-$1-@KERNEL@ "Requires: nvidia-driver = 3:$1-1.el9"
[ -z "$2" ] || sub nvidia-fabric-manager 'Epoch: 0'
cat <<END
%post -n kmod-nvidia-open-dkms
echo \$PPID >/run/rpm; while [ -e /run/post-waits ]; do sleep 0.1; done
[ -e /etc/dkms-fails ] || echo $1 >/var/lib/built
if [ $1 = "\$(cat /sys/module/nvidia/version)" ]; then
    sed -i /LIB_RM_VERSION/d /run/nodevet-sim/nvml.state
else
    echo 'init = NVML_ERROR_LIB_RM_VERSION_MISMATCH' >>/run/nodevet-sim/nvml.state
fi
%install
u=%{buildroot}/usr/lib/systemd/system
mkdir -p %{buildroot}/usr/share/nvidia \$u/multi-user.target.wants
cp /tmp/build/unit \$u/simulated-module.service
ln -s ../simulated-module.service \$u/multi-user.target.wants/
for p in nvidia-driver nvidia-driver-libs kmod-nvidia-open-dkms kmod-nvidia-$1-@KERNEL@ \
    ${2:+nvidia-fabric-manager}; do echo $1 >%{buildroot}/usr/share/nvidia/\$p; done
END
} >$1.spec
}
module >unit
make @OLD@ fm; make @NEW@ fm; make @PARTLY@ ''
cat >settings.spec <<'END'
Name: nvidia-settings
Version: %{v}
Release: 1
Summary: x
License: x
%{?needs:Requires: nvlsm}
%{?takes:Obsoletes: nvidia-xconfig}
%description
x
%files
END
sed 's/nvidia-settings/nvlsm/; s/%{v}/1/; /?/d' settings.spec >nvlsm.spec
sed 's/nvidia-settings/nvidia-xconfig/; s/%{v}/1/; /?/d' settings.spec >xconfig.spec
sed 's/nvidia-settings/shell/; s/%{v}/1/; s:^%{?needs.*:Provides\: /bin/sh:; /?/d' \
    settings.spec >shell.spec
sed 's/nvidia-settings/nvidia-kmp/; s/%{v}/@OLD@/; /?/d
    /^License/aProvides: multiversion(kernel)' settings.spec >kmp.spec
build() {
    rpmbuild -bb --target x86_64 -D '_rpmdir /srv/repo' -D '_topdir /tmp/build' \
        -D '_binary_payload w0.gzdio' -D '_build_id_links none' "$@" >log 2>&1 && return
    cat log >&2; exit 1
}
build @OLD@.spec @NEW@.spec @PARTLY@.spec nvlsm.spec xconfig.spec shell.spec kmp.spec
build -D 'v 1' settings.spec; build -D 'v 2' -D 'needs 1' settings.spec
build -D 'v 3' -D 'takes 1' settings.spec
cd /srv/repo; createrepo_c -q .
stream() { # name, versions
    printf -- '---\ndocument: modulemd\nversion: 2\ndata:\n  name: nvidia-driver\n'
    printf '  stream: "%s"\n' $1
    printf '  version: 20250101000000\n  context: c0ffee\n  arch: x86_64\n  summary: x\n'
    printf '  description: x\n  license: {module: [MIT]}\n  artifacts:\n    rpms:\n'; shift
    for v; do for p in nvidia-driver nvidia-driver-libs kmod-nvidia-open-dkms \
        kmod-nvidia-$v-@KERNEL@ nvidia-fabric-manager; do
        e=3; [ $p != nvidia-fabric-manager ] || e=0
        echo "    - $p-$e:$v-1.el9.x86_64"
    done; done; echo ...
}
{
    stream 550-open @OLD@; stream 570-open @NEW@; stream open-dkms @NEW@ @PARTLY@
} >/tmp/modules.yaml
modifyrepo_c --mdtype=modules /tmp/modules.yaml repodata >/dev/null
dnf -y -q module enable nvidia-driver:550-open
dnf -y -q install nvidia-driver nvidia-fabric-manager nvidia-settings-1 nvidia-xconfig \
    kmod-nvidia-@OLD@-@KERNEL@
sed -i 's:^locklist.*:locklist = /etc/dnf/locks.list:' /etc/dnf/plugins/versionlock.conf
touch /etc/dnf/locks.list
dnf -q versionlock add nvidia-fabric-manager
dnf -q versionlock exclude --raw 'nvidia-fabric-manager-0:9.9-1.*'
"""
PUT = (
    _MAKE.replace("@OLD@", OLD)
    .replace("@NEW@", NEW)
    .replace("@PARTLY@", PARTLY)
    .replace("@KERNEL@", KERNEL)
)
"""The script that makes the repository and installs the old driver by dnf."""

SUSE = """
set -e
mkdir -p /etc/products.d
zypper -n -q refresh
zypper -n addlock nvidia-fabric-manager
"""
"""The script that gives the node's packages to zypper."""
