// The environment and the tests set these properties of the emulated machine.
#pragma once
#include <cstdint>
#include <string>

namespace emulator {

// Config is read once, from PLIMSOLL_EMULATOR_* (see emulator.h), before the first call.
struct Config {
    int devices = 1;
    uint64_t memory = uint64_t{4} << 30; // bytes of a device
    int capability = 90;                 // ten times that of the devices
    uint64_t chaos = 0;                  // seed of random delays; 0 for none
    int processors = 0;                  // threads that run the blocks of a launch; 0: as the host has, at most 4
    bool poison = false;                 // fill new memory with NaNs
    bool strict = false;                 // a finding makes later calls fail
    std::string report;                  // file that findings are appended to
    std::string fail;                    // failures to inject: see Faults
};

Config &config();

} // namespace emulator
