"""Makes chat.json: conversations as text, by transformers' own renderer of chat templates. Run: python chat.py (transformers 5, jinja2)."""

import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATES = {
    "marked": """{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{% endif %}""",
    "system first": """{%- if messages[0].role == 'system' -%}
    {%- set system = messages[0].content %}{%- set rest = messages[1:] -%}
{%- else -%}
    {%- set system = 'Be brief.' %}{%- set rest = messages %}
{%- endif -%}
{{ bos_token }}{% for m in rest %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles alternate: ' ~ m.role) }}{% endif %}
{%- if m.role == 'user' %}[INST] {{ ('<<' ~ system ~ '>> ') if loop.first else '' }}{{ m.content }} [/INST]
{%- else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}""",
    "namespace": """{%- set ns = namespace(turns=0, last='') %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.turns = ns.turns + 1 %}{% endif %}
{%- set ns.last = m.role %}
{{- '<' ~ loop.index ~ ':' ~ ns.turns ~ ' ' ~ m.role | upper ~ '>' ~ m.content.strip() ~ '\\n' }}
{%- if m.role is in ['system', 'tool'] and m.content is defined and m.content is string %}{{ '(' ~ m.content | length ~ ')' }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<' ~ messages | length + 1 ~ ':' ~ ns.turns ~ ' ASSISTANT>' }}{% endif %}""",
    "methods": """{% macro part(m) %}{{ m.content.split('</think>')[-1].lstrip('\\n') if '</think>' in m.content else m.content }}{% endmacro %}
{% for i in range(messages | length) %}{% set m = messages[i] %}{% if m.get('name') %}{{ m.name | tojson }}: {% endif %}{{ part(m) }}
{% if not loop.last %}---{% endif %}{% endfor %}{% if add_generation_prompt and not messages[-1].content.startswith('#') %}>>{% endif %}""",
}

TALKS = [
    [{"role": "user", "content": " What floats? "}, {"role": "assistant", "content": "A ship."}],
    [{"role": "system", "content": "Answer\nin \"Latin\"."}, {"role": "user", "content": "Ship? \u00e9 \U0001f6a2", "name": "Ann \u00fc"},
     {"role": "assistant", "content": "<think>\nhm\n</think>\n\nNavis."}, {"role": "user", "content": "#2"}, {"role": "assistant", "content": "Naves.\n"}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
]


def main():
    cases = []
    for name, template in TEMPLATES.items():
        for talk in TALKS:
            for prompt in (False, True):
                case = {"name": name, "template": template, "messages": talk, "prompt": prompt}
                try:
                    text, _ = render_jinja_template([talk], chat_template=template, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>")
                    case["text"] = text[0]
                except Exception as error:  # the template's own
                    case["error"] = str(error)
                cases.append(case)
    pathlib.Path(__file__).with_name("chat.json").write_text(json.dumps(cases, indent=1, ensure_ascii=False) + "\n")


main()
