# find_package(burst): burst::burst, and burst::burst_static.
include(${CMAKE_CURRENT_LIST_DIR}/burst-targets.cmake)
