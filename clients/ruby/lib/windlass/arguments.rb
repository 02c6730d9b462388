require "bigdecimal"
require "date"
require "json"
require "time"

module Windlass
  # Turns keywords into JSON that a job of Rust reads, with the meaning that Active Job's own form has there.
  module Arguments
    INTEGERS = (-(2**63)..(2**64 - 1))

    def self.to_json(keywords)
      JSON.generate(plain(keywords, nil))
    end

    # `path` names a value in an error, as `email.cc[1]`.
    def self.plain(value, path)
      case value
      when nil, true, false then value
      when String, Symbol then text(value.to_s, path)
      when Integer then INTEGERS.cover?(value) ? value : refuse(path, "is an integer of more than 64 bits")
      when Float then value.finite? ? value : refuse(path, "is #{value}, which JSON has not")
      when Array then value.each_with_index.map { |item, index| plain(item, "#{path}[#{index}]") }
      when Hash then value.to_h { |key, item| [name(key, path), plain(item, [path, key].compact.join("."))] }
      when Module then value.name || refuse(path, "is a class without a name")
      else object(value, path)
      end
    end

    def self.object(value, path)
      if defined?(ActiveSupport::Duration) && ActiveSupport::Duration === value then value.value
      elsif value.is_a?(BigDecimal) then value.to_s
      elsif value.is_a?(Date) && !value.is_a?(DateTime) then value.iso8601
      elsif value.is_a?(Time) || value.is_a?(DateTime) || value.respond_to?(:acts_like_time?) then value.iso8601(9)
      elsif value.respond_to?(:to_global_id) then value.to_global_id.to_s
      else refuse(path, "is an object of #{value.class}; pass a text or a number instead")
      end
    end

    def self.text(value, path)
      utf8 = value.encode(Encoding::UTF_8)
      refuse(path, "is no valid UTF-8") unless utf8.valid_encoding?
      refuse(path, "contains a NUL") if utf8.include?("\0")
      utf8
    rescue EncodingError
      refuse(path, "is no valid UTF-8")
    end

    def self.name(key, path)
      return text(key.to_s, path) if key.is_a?(String) || key.is_a?(Symbol)

      refuse(path, "has a key of #{key.class}, and needs texts or symbols")
    end

    def self.refuse(path, problem)
      raise EnqueueError, "argument `#{path}` #{problem}"
    end

    private_class_method :object, :text, :name, :refuse
  end
end
