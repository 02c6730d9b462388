# frozen_string_literal: true

module Windlass
  # Values of Ruby as the plain JSON that a job in Rust reads: the same that it reads from Active Job's own envelope.
  module Arguments
    INTEGERS = (-(2**63)..(2**64 - 1)) # i64 and u64
    DEPTH = 120

    # What Active Job's serializers write for these classes has a plain meaning.
    SERIALIZERS = %w[Date DateTime Time TimeWithZone Duration].map { |name| "ActiveJob::Serializers::#{name}Serializer" }

    module_function

    # Returns the only argument of a job, a hash. `nil` if there is none.
    def fields(arguments)
      first = arguments.first
      first = first.to_h if first.respond_to?(:permitted?)
      return first if arguments.size == 1 && first.is_a?(Hash)
      return if arguments.empty?

      raise ArgumentError, "a job in Rust takes keywords, and no positional arguments: write perform_later(name: value)"
    end

    # Returns a value as nothing but hashes, arrays, texts, numbers, booleans and nil.
    def plain(value, path = "", depth = 1)
      refuse(path, "is nested deeper than #{DEPTH} arrays and hashes") if depth > DEPTH
      case value
      when nil, true, false then value
      when Integer then INTEGERS.cover?(value) ? value : refuse(path, "is #{value}, which needs more than 64 bits")
      when Float then value.finite? ? value : refuse(path, "is #{value}, which JSON cannot say")
      when BigDecimal then value.finite? ? value.to_s("F") : refuse(path, "is #{value}, which is no number")
      when String, Symbol then text(value.to_s, path)
      when Array then value.each_with_index.map { |item, place| plain(item, "#{path}[#{place}]", depth + 1) }
      when Hash then object(value, path, depth)
      when GlobalID::Identification then identified(value, path)
      when Module then value.name || refuse(path, "is a class or module without a name")
      else serialized(value, path, depth)
      end
    end

    def text(value, path)
      text = value.encode(Encoding::UTF_8)
      refuse(path, "is not valid UTF-8; encode binary data, as Base64") unless text.valid_encoding?
      refuse(path, "contains a NUL character; encode binary data, as Base64") if text.include?("\0")
      String.new(text)
    rescue EncodingError
      refuse(path, "is not text in UTF-8; encode binary data, as Base64")
    end

    def object(hash, path, depth)
      hash.each_with_object({}) do |(key, value), fields|
        refuse(path, "has the key #{key.inspect}, which is no text") unless key.is_a?(String) || key.is_a?(Symbol)
        name = text(key.to_s, path)
        place = path.empty? ? name : "#{path}.#{name}"
        refuse(place, "has a name that Active Job keeps for itself") if name.start_with?("_aj_")
        refuse(place, "is there twice, as a text and as a symbol") if fields.key?(name)
        fields[name] = plain(value, place, depth + 1)
      end
    end

    def identified(record, path)
      record.to_global_id.to_s
    rescue URI::GID::MissingModelIdError
      refuse(path, "is a #{record.class} without an id; save it first")
    end

    def serialized(value, path, depth)
      value = value.to_h if (is_parameters = value.respond_to?(:permitted?))
      return object(value, path, depth) if is_parameters

      written = ActiveJob::Serializers.serialize(value)
      return plain(written["value"], path, depth) if SERIALIZERS.include?(written["_aj_serialized"])

      refuse(path, "is a #{value.class}, which Rust cannot read; pass a text or a number")
    rescue ActiveJob::SerializationError
      refuse(path, "is a #{value.class}, which Rust cannot read; pass a text or a number")
    end

    def refuse(path, problem)
      raise ArgumentError, "cannot enqueue the job: its argument `#{path}` #{problem}"
    end
  end
end
