#!/bin/sh
# What this machine has for building the book, asked before anything is installed.
#
#   prerequisites.sh backend        print the llama.cpp backend to build: cuda, metal or none
#   prerequisites.sh check BACKEND  print everything that is missing, each with the command that
#                                   puts it right, and exit 1; exit 0 when all is here
#   prerequisites.sh vulkan         print the option of CMake that old Vulkan headers need, if these are old
#
# Reads PYTHON (default python3), CXX, CUDA_PATH, TMPDIR, and MIRROR, which names a folder of `make mirror`.
# Plain POSIX sh: it runs where there is no Python yet.

PYTHON=${PYTHON:-python3}
PATH=$PATH:${CUDA_PATH:-/usr/local/cuda}/bin
NEEDED_MIB=2000      # .venv, node_modules and _build together
BUILD_MIB=1000       # llama.cpp's object files, in TMPDIR until it is installed
CUDA_BUILD_MIB=6000
OLDEST_VULKAN=239    # of 1.3.239, the oldest headers that this llama.cpp was compiled with
WHOLE_VULKAN=272     # from 1.3.272 on they have all that it uses; before, tools/vulkan_headers adds it

missing=0

has() { command -v "$1" >/dev/null 2>&1; }

problem() {  # what is missing, then the command
    missing=1
    printf '%s\n    %s\n' "$1" "$2" >&2
}

# The install command of this machine's package manager; arguments: apt, dnf, pacman, brew names.
install_command() {
    if [ "$(id -u)" = 0 ]; then sudo=; else sudo='sudo '; fi
    if has apt-get; then echo "${sudo}apt-get install $1"
    elif has dnf; then echo "${sudo}dnf install $2"
    elif has pacman; then echo "${sudo}pacman -S $3"
    elif has brew; then echo "brew install $4"
    else echo "(no package manager known here; Debian calls it $1)"
    fi
}

# True when a C++ source of this one line compiles. A name alone proves little: macOS has c++ before it
# has a compiler, and elsewhere the C++ headers may be absent.
compiles() {
    for compiler in ${CXX:+"$CXX"} c++ g++ clang++; do
        has "$compiler" && echo "$1" | "$compiler" -x c++ -fsyntax-only - 2>/dev/null && return
    done
    return 1
}

# A driver, not only a toolkit: without libcuda.so.1 a CUDA build of llama.cpp does not even load.
has_nvidia_driver() {
    nvidia-smi -L >/dev/null 2>&1 ||
        "$(command -v ldconfig || echo /sbin/ldconfig)" -p 2>/dev/null | grep -q 'libcuda\.so\.1'
}

backend() {
    for stamp in .venv/.installed-*; do
        if [ -e "$stamp" ]; then echo "${stamp##*-}"; return; fi
    done
    if [ "$(uname -s)" = Darwin ]; then echo metal
    elif has nvcc && has_nvidia_driver; then echo cuda
    else echo none
    fi
}

check_none() {
    if has nvcc && ! has_nvidia_driver; then
        echo "A CUDA toolkit is here but no NVIDIA driver answers, so llama.cpp is built for the CPU."
    fi
}

check_cuda() {
    has nvcc || problem "GPU=cuda needs the CUDA compiler nvcc." \
        "$(install_command nvidia-cuda-toolkit cuda-toolkit cuda '(CUDA does not exist for macOS: use GPU=metal)')"
    has_nvidia_driver || problem "GPU=cuda needs an NVIDIA driver: neither nvidia-smi nor libcuda.so.1 answers." \
        "$(install_command 'nvidia-driver    # Ubuntu: ubuntu-drivers install' akmod-nvidia nvidia \
            '(CUDA does not exist for macOS: use GPU=metal)')"
}

check_metal() {
    [ "$(uname -s)" = Darwin ] || problem "GPU=metal needs macOS." "make book GPU=none"
}

check_vulkan() {
    has glslc && compiles '#include <vulkan/vulkan.h>' && compiles '#include <spirv/unified1/spirv.hpp>' ||
        problem "GPU=vulkan needs the Vulkan shader compiler and headers." \
            "$(install_command 'libvulkan-dev glslc spirv-headers' \
                'vulkan-loader-devel glslc spirv-headers-devel' \
                'vulkan-headers vulkan-icd-loader shaderc spirv-headers' \
                'vulkan-headers vulkan-loader shaderc spirv-headers molten-vk')"
    headers=$(vulkan_headers)
    [ "${headers:-$OLDEST_VULKAN}" -ge "$OLDEST_VULKAN" ] ||
        problem "GPU=vulkan needs Vulkan headers 1.3.$OLDEST_VULKAN or newer; VK_HEADER_VERSION is $headers here." \
            "make book GPU=none    # or first install the Vulkan SDK of https://vulkan.lunarg.com/sdk/home"
}

# The last number of the Vulkan headers' version, which rises from release to release: 239 of 1.3.239.
vulkan_headers() {
    for compiler in ${CXX:+"$CXX"} c++ g++ clang++; do
        has "$compiler" || continue
        printf '#include <vulkan/vulkan_core.h>\nVK_HEADER_VERSION\n' | "$compiler" -x c++ -E -P - 2>/dev/null |
            awk '/^[0-9]+$/ { found = $1 } END { print found }'
        return
    done
}

vulkan_option() {
    headers=$(vulkan_headers)
    [ "${headers:-$WHOLE_VULKAN}" -ge "$WHOLE_VULKAN" ] ||
        echo "-DCMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES='$PWD/tools/vulkan_headers'"
}

check_backend() {
    case $1 in
        none | cuda | metal | vulkan) "check_$1" ;;
        *) problem "GPU=$1 is not a backend; cuda, metal, vulkan and none are." "make book GPU=none" ;;
    esac
}

# Prints the version of a Python, like 3.11; succeeds only for one this book can use.
usable_version() {
    "$1" -c 'import sys
v = sys.version_info[:2]
print("%d.%d" % v)
sys.exit(not (3, 10) <= v <= (3, 13))' 2>/dev/null
}

check_python() {
    if version=$(usable_version "$PYTHON"); then
        "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
            problem "Python $version lacks its venv module." \
                "$(install_command "python$version-venv" "python$version" python "python@$version")"
    else
        suggest_python
    fi
}

suggest_python() {
    found="$PYTHON is ${version:-not here}"
    for other in python3.13 python3.12 python3.11 python3.10; do
        usable_version "$other" >/dev/null || continue
        problem "Python 3.10 to 3.13 is needed: $found, but $other is." "make book PYTHON=$other"
        return
    done
    problem "Python 3.10 to 3.13 is needed: $found." \
        "$(install_command 'python3.13 python3.13-venv' python3.13 'uv && uv python install 3.13' python@3.13)"
}

check_compiler() {
    compiles '#include <string>' && return
    if [ "$(uname -s)" = Darwin ]; then install='xcode-select --install'
    else install=$(install_command g++ gcc-c++ gcc gcc)
    fi
    problem "llama.cpp needs a C++ compiler." "$install"
}

# A llama.cpp that the mirror has built for this machine needs no compiler, and nothing else does.
# A mirror that cannot be used says why by itself.
check_llama() {
    if [ -n "${MIRROR:-}" ] && usable_version "$PYTHON" >/dev/null; then
        "$PYTHON" tools/mirror.py built "$MIRROR" "$1"
        case $? in
            0) return ;;
            1) ;;
            *) missing=1; return ;;
        esac
    fi
    check_compiler
}

check_space() {  # directory, MiB needed, command
    free=$(df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')
    [ "${free:-$2}" -ge "$2" ] ||
        problem "Too little disk space in $1: $2 MiB are needed, $free MiB are free." "$3"
}

check() {
    check_backend "$1"
    check_python
    check_llama "$1"
    if [ "$1" = cuda ]; then BUILD_MIB=$CUDA_BUILD_MIB; fi
    check_space "$PWD" "$NEEDED_MIB" "df -h    # free some, or clone to a larger disk"
    check_space "${TMPDIR:-/tmp}" "$BUILD_MIB" "mkdir -p ~/tmp && TMPDIR=~/tmp make book"
    return "$missing"
}

case ${1:-} in
    backend) backend ;;
    check) check "${2:-none}" ;;
    vulkan) vulkan_option ;;
    *) echo "usage: $0 backend | check BACKEND | vulkan" >&2; exit 2 ;;
esac
