// Handles: the objects that a program holds.
#pragma once
#include <map>
#include <memory>

namespace emulator {

// Handles owns the live objects of one type. A handle is an object's address; one that is not live is found out.
template <class T> class Handles {
public:
    T *add(std::shared_ptr<T> object) {
        T *handle = object.get();
        live_[handle] = std::move(object);
        return handle;
    }
    // Null when no live object has the handle.
    std::shared_ptr<T> find(const void *handle) const {
        const auto found = live_.find(handle);
        return found == live_.end() ? nullptr : found->second;
    }
    std::shared_ptr<T> remove(const void *handle) {
        const std::shared_ptr<T> object = find(handle);
        live_.erase(handle);
        return object;
    }
    template <class F> void each(F visit) const {
        for (const auto &[handle, object] : live_) visit(*object);
    }
    // Forgets the objects of a context, which is destroyed.
    template <class Context> void removeOf(const Context *context) {
        for (auto it = live_.begin(); it != live_.end();) it = it->second->context == context ? live_.erase(it) : ++it;
    }

private:
    std::map<const void *, std::shared_ptr<T>> live_;
};

} // namespace emulator
