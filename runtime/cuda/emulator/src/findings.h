// Findings: what the emulator noticed and a real GPU would not have told.
#pragma once
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace emulator {

// Finding names the kinds of findings.
namespace Finding {
constexpr const char *bounds = "out of bounds";
constexpr const char *order = "unordered accesses";
constexpr const char *race = "race in a block";
constexpr const char *barrier = "barrier";
constexpr const char *instruction = "instruction";
constexpr const char *ignored = "ignored error";
constexpr const char *leak = "leak";
constexpr const char *handle = "dead handle";
constexpr const char *early = "early release";
constexpr const char *foreign = "foreign memory";
} // namespace Finding

// Findings collects them; the same text counts once.
class Findings {
public:
    void add(const char *kind, const std::string &text);
    // The same, unless there is one with this key.
    void addOnce(const char *kind, const std::string &key, const std::string &text);
    std::string text() const; // a line each
    int count() const;
    void clear();

    static constexpr size_t most = 100; // so that a broken kernel does not fill the memory

private:
    void report(const std::string &line) const;

    mutable std::mutex mutex_;
    std::vector<std::string> lines_;
    std::set<std::string> known_;
};

Findings &findings();

} // namespace emulator
