# Cross-compiles for 64-bit ARM Linux with Debian's g++-aarch64-linux-gnu. Static, so that an emulator needs no libraries
# of that system: cmake -DCMAKE_TOOLCHAIN_FILE=.../aarch64-linux-gnu.cmake -DPYLLAMACPP_PYTHON=OFF -DPYLLAMACPP_TESTS=ON
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
