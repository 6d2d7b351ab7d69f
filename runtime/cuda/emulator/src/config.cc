#include "config.h"

#include <cstdlib>
#include <thread>

#include "checks.h"

namespace emulator {

namespace {

std::string text(const char *name) {
    const char *value = getenv((std::string("PLIMSOLL_EMULATOR_") + name).c_str());
    return value ? value : "";
}

uint64_t number(const char *name, uint64_t otherwise) {
    const std::string value = text(name);
    return value.empty() ? otherwise : strtoull(value.c_str(), nullptr, 0);
}

Config fromEnvironment() {
    Config c;
    c.devices = static_cast<int>(number("DEVICES", 1));
    c.memory = number("MEMORY", c.memory);
    c.capability = static_cast<int>(number("CAPABILITY", c.capability));
    c.chaos = number("CHAOS", 0);
    const unsigned cores = std::thread::hardware_concurrency();
    c.processors = static_cast<int>(number("PROCESSORS", cores < 1 ? 1 : cores > 4 ? 4 : cores));
    c.poison = number("POISON", checks::enabled) != 0;
    c.strict = number("STRICT", 0) != 0;
    c.report = text("REPORT");
    c.fail = text("FAIL");
    return c;
}

} // namespace

Config &config() {
    static Config c = fromEnvironment();
    return c;
}

} // namespace emulator
