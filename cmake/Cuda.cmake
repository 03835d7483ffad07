# Decides whether CUDA is built, with which compiler and for which architectures.
#
#   AUTO  builds for the GPUs of this machine; without one, for the CPU alone
#   ON    requires nvcc; without a GPU it builds SPECPILOT_CUDA_ARCHS
#   OFF   CPU alone
set(SPECPILOT_CUDA_ARCHS "" CACHE STRING "CUDA architectures, e.g. \"90a-real\"; empty: the GPUs present, else all supported")
set(SPECPILOT_HAVE_CUDA OFF)
if(SPECPILOT_CUDA STREQUAL "OFF")
  return()
endif()

execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
  OUTPUT_VARIABLE caps OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE rc)
if(NOT rc EQUAL 0)
  set(caps "")
endif()
if(SPECPILOT_CUDA STREQUAL "AUTO" AND NOT caps)
  message(STATUS "specpilot: no GPU here, building for the CPU alone (force: SPECPILOT_CUDA=ON, SPECPILOT_CUDA_ARCHS=90a-real)")
  return()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(SPECPILOT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SPECPILOT_CUDA=ON, but no CUDA compiler: put nvcc on PATH or set CUDACXX")
  endif()
  message(WARNING "specpilot: a GPU but no CUDA compiler, building for the CPU alone; put nvcc on PATH or set CUDACXX")
  return()
endif()

if(SPECPILOT_CUDA_ARCHS)
  foreach(arch IN LISTS SPECPILOT_CUDA_ARCHS)
    if(NOT arch MATCHES "^[0-9]+[af]?(-real|-virtual)?$") # what cuda_info.h understands: a GPU's fitness is judged by this list
      message(FATAL_ERROR "SPECPILOT_CUDA_ARCHS has \"${arch}\", expected entries like 90a-real, 100f-real, 80 or 120-virtual")
    endif()
  endforeach()
  set(CMAKE_CUDA_ARCHITECTURES ${SPECPILOT_CUDA_ARCHS})
elseif(caps)
  string(REGEX REPLACE "[ \t\r\n]+" ";" caps "${caps}")
  list(REMOVE_DUPLICATES caps)
  set(CMAKE_CUDA_ARCHITECTURES "")
  foreach(cap IN LISTS caps)
    string(REPLACE "." "" sm "${cap}")
    if(sm GREATER_EQUAL 90)
      string(APPEND sm "a") # wgmma, setmaxnreg need the architecture-specific target
    endif()
    list(APPEND CMAKE_CUDA_ARCHITECTURES "${sm}-real")
  endforeach()
else()
  set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90a-real 100f-real 120f-real)
endif()

enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static) # no libcudart to find at run time; imports on machines with no driver
set(SPECPILOT_HAVE_CUDA ON)
message(STATUS "specpilot: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
